-- The payload header and the SYN option of FORMAT.md, for Wireshark and tshark.
--
--     tshark -X lua_script:$(softnic inspect --dissector) -r job.pcapng -Y 'softnic.ratio > 4'
--
-- Whether a TCP payload starts with a payload header is up to its IPv4 ToS and to what both NICs said in the
-- handshake, and not to a port; and sequence numbers count original bytes, so TCP's reassembly would make nothing of
-- the payloads. So this is a postdissector: it reads what IPv4 and TCP were found to be, and adds a tree of its own.
--
-- The rules are those of `softnic inspect`. On a connection whose SYN and SYN-ACK both carried the option, a header
-- that contradicts its packet is malformed; where the handshake was not captured, it is taken for bytes of the stream;
-- where a side offered nothing, there is nothing to find. Interfaces named ...:host show what TCP sees: none there.
--
-- Arithmetic instead of bit operators: Lua 5.1 to 5.4 share no others.

local HEADER_BYTES = 12
local VERSION = 1
local OPTION_KIND, OPTION_BYTES, OPTION_EXPERIMENT, OPTION_VERSION = 254, 9, 0x534e4943, 1
local DEFAULT_OFFLOADS = {[0x28] = true}

local function blocks(words, size)
    return math.floor((words + size - 1) / size)
end

-- By number: name, range of the parameter, the bytes that no encoding of so many words stays below, and the names of
-- the parameters, where they have some.
local CODECS = {
    [0] = {"raw", 0, 0, function(_, words) return 4 * words end},
    [1] = {"inceptionn", 1, 23, function(_, words) return 2 * blocks(words, 8) end},
    [2] = {"bounded", 1, 23, function(_, words) return blocks(words, 64) end},
    [3] = {"bfp", 3, 15, function(_, words) return blocks(words, 16) end},
    [4] = {"truncate", 8, 32, function(bits, words) return bits * blocks(words, 8) end},
    [5] = {"rht", 3, 6, function(_, words)
        local least = 2 * math.floor(words / 128) + 4 * (words % 8)
        for _, size in ipairs({64, 32, 16, 8}) do
            least = least + 2 * (math.floor(words / size) % 2)
        end
        return least
    end},
    [6] = {"exact", 16, 32, function(bits, words)
        local planes, rest = 32 / bits, words % 128
        local least = math.floor(words / 128) * (1 + 32 * planes + (4 - planes) * 128)
        if rest > 0 then
            least = least + math.min(1 + 4 * rest, 1 + 2 * blocks(planes * rest, 8) + (4 - planes) * rest)
        end
        return least
    end},
    [7] = {"mx", 1, 4, function(parameter, words)
        local bits, rest = ({8, 8, 6, 4})[parameter], words % 32
        return math.floor(words / 32) * (1 + 4 * bits) + (rest > 0 and 1 + blocks(bits * rest, 8) or 0)
    end, {"e4m3", "e5m2", "e2m3", "e2m1"}},
}
local NAMES = {}
for number, codec in pairs(CODECS) do
    NAMES[number] = codec[1]
end

local softnic = Proto("softnic", "softnic compressed payload")

softnic.prefs.offloads = Pref.string(
    "ToS that select an offload", "", "Numbers, separated by commas. Empty: what the capture's interfaces say, or 0x28"
)
softnic.prefs.assume = Pref.bool(
    "Go by the ToS alone where the handshake was not captured", true,
    "Segments whose payload starts with a valid header are then taken to be compressed"
)

local f = {
    version = ProtoField.uint8("softnic.version", "Version", base.DEC, nil, 0xf0),
    flags = ProtoField.uint8("softnic.flags", "Flags", base.HEX, nil, 0x0f),
    raw = ProtoField.bool("softnic.flags.raw", "RAW: the body is original bytes", 8, nil, 0x01),
    padded = ProtoField.bool("softnic.flags.padded", "PADDED: bytes to be ignored follow", 8, nil, 0x02),
    codec = ProtoField.uint8("softnic.codec", "Codec", base.DEC, NAMES),
    parameter = ProtoField.int8("softnic.parameter", "Parameter"),
    name = ProtoField.string("softnic.codec.name", "Codec and parameter"),
    tail = ProtoField.uint8("softnic.tail", "Tail length"),
    original = ProtoField.uint32("softnic.original_length", "Original length"),
    encoded = ProtoField.uint32("softnic.encoded_length", "Encoded length"),
    ratio = ProtoField.double("softnic.ratio", "Ratio of original to payload bytes"),
    body = ProtoField.bytes("softnic.body", "Body, tail included"),
    padding = ProtoField.bytes("softnic.padding", "Padding"),
    malformed = ProtoField.string("softnic.malformed", "Malformed"),
    option = ProtoField.none("softnic.option", "Codecs that the sender can decode"),
    option_version = ProtoField.uint8("softnic.option.version", "Option version"),
    codecs = ProtoField.uint16("softnic.option.codecs", "Codecs", base.HEX),
}
local offers = {}
for number = 0, 15 do
    local name = NAMES[number]
    if name then
        offers[number] = ProtoField.bool("softnic.option." .. name, name, 16, nil, math.floor(2 ^ number))
    end
end
softnic.fields = {
    f.version, f.flags, f.raw, f.padded, f.codec, f.parameter, f.name, f.tail, f.original, f.encoded, f.ratio, f.body,
    f.padding, f.malformed, f.option, f.option_version, f.codecs, offers[0], offers[1], offers[2], offers[3], offers[4],
    offers[5], offers[6], offers[7],
}

local function malformed(what, text)
    return ProtoExpert.new("softnic.malformed." .. what, text, expert.group.MALFORMED, expert.severity.ERROR)
end
local e = {
    short = malformed("short", "Too short for a payload header"),
    version = malformed("version", "Unknown version"),
    flags = malformed("flags", "Unknown flags"),
    codec = malformed("codec", "Unknown codec"),
    parameter = malformed("parameter", "Parameter out of range"),
    tail = malformed("tail", "Tail and original length disagree"),
    length = malformed("length", "Lengths disagree"),
    cut = ProtoExpert.new("softnic.cut", "Payload header not captured", expert.group.UNDECODED, expert.severity.NOTE),
    option = ProtoExpert.new(
        "softnic.option.unknown", "Option of an unknown version", expert.group.UNDECODED, expert.severity.WARN
    ),
}
softnic.experts = {e.short, e.version, e.flags, e.codec, e.parameter, e.tail, e.length, e.cut, e.option}

local get = {
    interface = Field.new("frame.interface_name"),
    description = Field.new("frame.interface_description"),
    icmp = Field.new("icmp.type"),
    tos = Field.new("ip.dsfield"),
    stream = Field.new("tcp.stream"),
    syn = Field.new("tcp.flags.syn"),
    length = Field.new("tcp.len"),
    payload = Field.new("tcp.payload"),
    options = Field.new("tcp.options"),
}

-- By TCP stream, then by sender: the bitmap of its SYN's option, or false where the SYN had none.
local handshakes = {}

function softnic.init()
    handshakes = {}
end

-- The innermost occurrence: below VXLAN there is an outer IPv4 header too.
local function last(field)
    local found = {field()}
    return found[#found]
end

-- What selects an offload

local parsed = {}

-- The ToS of a text, as a set without the two bits of ECN, or nil where there are none.
local function numbers(text, pattern)
    local known = parsed[pattern .. text]
    if known == nil then
        known = false
        for part in text:gmatch(pattern) do
            local tos = tonumber(part)
            if tos then
                known = known or {}
                known[tos - tos % 4] = true
            end
        end
        parsed[pattern .. text] = known
    end
    return known or nil
end

local function offloads()
    local description = get.description()
    return numbers(softnic.prefs.offloads, "%w+")
        or description and numbers(tostring(description.value), "(0x%x%x)=")
        or DEFAULT_OFFLOADS
end

-- The SYN's option

local function find_option(options)
    local bytes, at = options:bytes(), 0
    while at < bytes:len() and bytes:get_index(at) ~= 0 do
        local kind, length = bytes:get_index(at), 1
        if kind ~= 1 then
            if at + 1 >= bytes:len() then return nil end
            length = bytes:get_index(at + 1)
            if length < 2 or at + length > bytes:len() then return nil end
        end
        if kind == OPTION_KIND and length == OPTION_BYTES and options(at + 2, 4):uint() == OPTION_EXPERIMENT then
            return options(at, length)
        end
        at = at + length
    end
    return nil
end

local function dissect_option(option, pinfo, tree)
    local bitmap, names = option(7, 2), {}
    for number = 0, 15 do
        if math.floor(bitmap:uint() / 2 ^ number) % 2 == 1 then
            names[#names + 1] = NAMES[number] or tostring(number)
        end
    end
    local root = tree:add(softnic, option)
    local item = root:add(f.option, option)
    item:append_text(": " .. table.concat(names, ", "))
    local version = item:add(f.option_version, option(6, 1))
    if option(6, 1):uint() ~= OPTION_VERSION then
        version:add_proto_expert_info(e.option)
        return
    end
    local codecs = item:add(f.codecs, bitmap)
    for number = 0, 15 do
        if offers[number] then codecs:add(offers[number], bitmap) end
    end
    pinfo.cols.info:append("  softnic " .. table.concat(names, ","))
end

local function dissect_syn(pinfo, tree)
    local options = last(get.options)
    local option = options and find_option(options.range)
    local stream = last(get.stream).value
    local sides = handshakes[stream] or {}
    handshakes[stream] = sides
    local offered = option and option(6, 1):uint() == OPTION_VERSION
    sides[tostring(pinfo.src) .. ":" .. pinfo.src_port] = offered and option(7, 2):uint() or false
    if option then dissect_option(option, pinfo, tree) end
end

-- Whether both sides are known to take compressed payloads, and whether one is known not to.
local function agreement(stream)
    local said, refused = 0, false
    for _, codecs in pairs(handshakes[stream] or {}) do
        said = said + 1
        refused = refused or not codecs
    end
    return said == 2 and not refused, refused
end

-- The payload header

local function read_header(range, length)
    local first = range(0, 1):uint()
    return {
        version = math.floor(first / 16), flags = first % 16,
        raw = first % 2 == 1, padded = math.floor(first / 2) % 2 == 1,
        codec = range(1, 1):uint(), parameter = range(2, 1):int(), tail = range(3, 1):uint(),
        original = range(4, 4):uint(), encoded = range(8, 4):uint(), room = length - HEADER_BYTES,
    }
end

local function name_of(header)
    local name = NAMES[header.codec] or "codec " .. header.codec
    local parameters = CODECS[header.codec] and CODECS[header.codec][5] or {}
    return header.codec == 0 and name or name .. ":" .. (parameters[header.parameter] or header.parameter)
end

-- Of a codec that is known and takes the parameter, what is wrong with the lengths; nil: nothing.
local function wrong_lengths(h)
    local words = math.floor(h.original / 4)
    if h.original == 0 then return "a segment cannot stand for no bytes" end
    if h.encoded < h.tail then return "an encoded length of " .. h.encoded .. " leaves no room for the tail" end
    if h.raw and h.encoded ~= h.original then
        return "a RAW body of " .. h.encoded .. " bytes cannot stand for " .. h.original
    end
    if not h.raw and h.encoded - h.tail < CODECS[h.codec][4](h.parameter, words) then
        return h.encoded - h.tail .. " bytes of " .. name_of(h) .. " cannot stand for " .. words .. " words"
    end
    if h.encoded > h.room or (h.encoded < h.room) ~= h.padded then
        local more = h.padded and " and padding" or ""
        return "the header says " .. h.encoded .. " bytes" .. more .. ", " .. h.room .. " follow it"
    end
    return nil
end

-- What FORMAT.md calls malformed, a list of {field, text}.
local function problems(h)
    local found = {}
    local function wrong(field, text)
        found[#found + 1] = {field, text}
    end
    if h.version ~= VERSION then wrong("version", "version " .. h.version .. ", not " .. VERSION) end
    if h.flags > 3 then wrong("flags", "unknown flags") end
    local codec = CODECS[h.codec]
    if not codec then
        wrong("codec", "there is no codec number " .. h.codec)
    elseif h.parameter < codec[2] or h.parameter > codec[3] then
        wrong("parameter", codec[1] .. " takes " .. codec[2] .. " to " .. codec[3] .. ", not " .. h.parameter)
    elseif h.codec == 0 and not h.raw then
        wrong("codec", "codec raw without the RAW flag")
    end
    if h.tail ~= h.original % 4 then
        wrong("tail", "a tail of " .. h.tail .. " bytes does not fit an original length of " .. h.original)
    end
    if #found == 0 then
        local text = wrong_lengths(h)
        if text then wrong("length", text) end
    end
    return found
end

-- Adds all fields; returns the items that problems point at.
local function add_fields(root, range, h, length)
    local items = {version = root:add(f.version, range(0, 1)), flags = root:add(f.flags, range(0, 1))}
    items.flags:add(f.raw, range(0, 1))
    items.flags:add(f.padded, range(0, 1))
    items.codec = root:add(f.codec, range(1, 1))
    items.parameter = root:add(f.parameter, range(2, 1))
    root:add(f.name, range(1, 2), name_of(h)):set_generated()
    items.tail = root:add(f.tail, range(3, 1))
    root:add(f.original, range(4, 4))
    items.length = root:add(f.encoded, range(8, 4))
    root:add(f.ratio, range(4, 8), h.original / length):set_generated()
    local captured = range:len() - HEADER_BYTES
    local body = math.min(h.encoded, captured)
    if body > 0 then root:add(f.body, range(HEADER_BYTES, body)) end
    if captured > body then root:add(f.padding, range(HEADER_BYTES + body)) end
    return items
end

local function tell(pinfo, root, text)
    pinfo.cols.protocol = "SOFTNIC"
    pinfo.cols.info:prepend("softnic " .. text .. "  ")
    root:append_text(": " .. text)
end

-- Where it is wrong the field says so, and a line that one filter finds.
local function blame(root, item, what, text)
    item:add_proto_expert_info(e[what], text)
    root:add(f.malformed, text):set_generated()
end

-- A payload without room for a header, as it was sent or as it was captured.
local function dissect_start(range, length, pinfo, tree)
    local root = tree:add(softnic, range)
    if length < HEADER_BYTES then
        local text = length .. " bytes are not enough for a payload header of " .. HEADER_BYTES
        blame(root, root, "short", text)
        tell(pinfo, root, "malformed: " .. text)
    else
        root:add_proto_expert_info(e.cut)
        tell(pinfo, root, "header cut off")
    end
end

local function dissect_payload(range, length, certain, pinfo, tree)
    if range:len() < HEADER_BYTES then
        if certain then dissect_start(range, length, pinfo, tree) end
        return
    end
    local h = read_header(range, length)
    local wrong = problems(h)
    if #wrong > 0 and not certain then return end
    local root = tree:add(softnic, range)
    local items = add_fields(root, range, h, length)
    for _, one in ipairs(wrong) do
        blame(root, items[one[1]], one[1], one[2])
    end
    if #wrong > 0 then
        tell(pinfo, root, "malformed: " .. wrong[1][2])
    else
        local flags = (h.raw and " RAW" or "") .. (h.padded and " PADDED" or "")
        tell(pinfo, root, name_of(h) .. flags .. " " .. h.original .. " -> " .. h.encoded)
    end
end

function softnic.dissector(_, pinfo, tree)
    local stream, tos, interface = last(get.stream), last(get.tos), get.interface()
    if not stream or not tos or get.icmp() then return end
    if interface and tostring(interface.value):match(":host$") then return end
    if last(get.syn).value then dissect_syn(pinfo, tree) end
    local payload = last(get.payload)
    if not payload or not offloads()[tos.value - tos.value % 4] then return end
    local certain, refused = agreement(stream.value)
    if refused or not (certain or softnic.prefs.assume) then return end
    dissect_payload(payload.range, last(get.length).value, certain, pinfo, tree)
end

register_postdissector(softnic)
