/* The tables of loops that reduce.c selects from, one per implementation that has its own. */
#ifndef SOFTNIC_REDUCERS_H
#define SOFTNIC_REDUCERS_H
#include "codecs/kernels.h"
#include "codecs/reduce.h"

typedef void sn_reducer(const uint8_t *left, const uint8_t *right, size_t count, uint8_t *out);
typedef void sn_converter(const uint8_t *from, size_t count, uint8_t *to);

typedef struct {
    sn_reducer *reduce[SN_OPERATIONS][SN_TYPES]; /* NULL where it is not defined */
    sn_converter *widen[SN_TYPES]; /* NULL except for 16-bit floats */
    sn_converter *narrow[SN_TYPES];
} sn_reducers;

extern const sn_reducers sn_reducers_portable;
#ifdef SN_HAVE_AVX2
extern const sn_reducers sn_reducers_avx2;
#endif
#ifdef SN_HAVE_AVX512
extern const sn_reducers sn_reducers_avx512;
#endif

#endif
