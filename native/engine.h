/* What the collective engine (softnic/collectives) asks of all its streams in each turn. */
#ifndef SOFTNIC_ENGINE_H
#define SOFTNIC_ENGINE_H
/* C only */
#include <stdint.h>

#include "fast_path.h"
/* all */

enum { SN_STREAM_UNREAD = 1, SN_STREAM_ENDED = 2 };

/* SN_STREAM_UNREAD if one of the first `control` flows has unread bytes, and SN_STREAM_ENDED if one of all `count` is not
   open in both directions. */
uint32_t sn_look_at_streams(const sn_flow *const *flows, uint32_t control, uint32_t count);

#endif
