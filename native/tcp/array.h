/* Arrays that grow at their end and shrink at both: the elements are `first` to `first + count` of `capacity`. */
#ifndef SOFTNIC_ARRAY_H
#define SOFTNIC_ARRAY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Whether elements may be moved to the front to make room: only if few are moved for each one that was removed. */
static inline bool sn_array_may_move(int64_t count, int64_t capacity, int64_t more)
{
    return 2 * (count + more) <= capacity;
}

/* Whether `more` elements need no memory. */
static inline bool sn_array_has_room(int64_t first, int64_t count, int64_t capacity, int64_t more)
{
    return first + count + more <= capacity || sn_array_may_move(count, capacity, more);
}

/* Makes room for `more` elements of `size` bytes behind those of `array`, at most as many as a new array has. Returns
   the array, or NULL if there is no memory; then nothing has changed. */
static inline void *sn_array_reserve(void *array, size_t size, int64_t *first, int64_t count, int64_t *capacity,
                                     int64_t more)
{
    const int64_t first_capacity = 8;
    if (*first + count + more <= *capacity)
        return array;
    if (!sn_array_may_move(count, *capacity, more)) {
        int64_t larger = *capacity ? 2 * *capacity : first_capacity;
        array = realloc(array, (size_t)larger * size);
        if (array == NULL)
            return NULL;
        *capacity = larger;
    }
    memmove(array, (char *)array + (size_t)*first * size, (size_t)count * size);
    *first = 0;
    return array;
}

#endif
