#include "engine.h"

#include "flow.h"

uint32_t sn_look_at_streams(const sn_flow *const *flows, uint32_t control, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t index = 0; index < count; index++) {
        if (!flows[index]->connection.established)
            found |= SN_STREAM_ENDED;
        if (index < control && flows[index]->receive.unread)
            found |= SN_STREAM_UNREAD;
    }
    return found;
}
