/* Replies to the preloaded library, of a NIC that sends anything. Input: the reply.

   Each member that the library asks for is looked up and read as every kind of value. Values must lie within the reply,
   and texts within their space. */
#include "preload/json.c"

#include "fuzz.h"

static void check_value(const char *text, size_t size, const char *value)
{
    char small[4], large[64];
    sp_address address = {0};

    if (value)
        CHECK(value > text && value <= text + size);
    sp_integer(value, 0);
    CHECK(sp_number(value) >= 0);
    if (sp_text(value, small, sizeof small))
        CHECK(memchr(small, 0, sizeof small));
    const char *end = sp_text(value, large, sizeof large);
    if (end)
        CHECK(end > value && end <= text + size && memchr(large, 0, sizeof large));
    sp_endpoint(value, &address);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"type",  "errno", "message", "stream", "state", "local",
                                        "peer",  "error", "srtt",    "value",  "name",  ""};
    char *text = (char *)exactly(size + 1);

    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        check_value(text, size, sp_member(text, names[index]));
    free(text);
    return 0;
}
