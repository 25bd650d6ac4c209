/* What each codec's file gives to codecs.c. The signatures are those of codecs.h without the codec number. */
#ifndef SOFTNIC_KERNELS_H
#define SOFTNIC_KERNELS_H
#include <stddef.h>
#include <stdint.h>

size_t sn_inceptionn_encode(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                            size_t capacity, size_t *consumed);
int sn_inceptionn_decode(int k, const uint8_t *body, size_t length, uint8_t *words, size_t count);
void sn_inceptionn_roundtrip(int k, const uint8_t *words, size_t count, uint8_t *out);

size_t sn_bounded_encode(int k, const uint8_t *words, size_t count, size_t first, uint8_t *out,
                         size_t capacity, size_t *consumed);
int sn_bounded_decode(int k, const uint8_t *body, size_t length, uint8_t *words, size_t count);
void sn_bounded_roundtrip(int k, const uint8_t *words, size_t count, uint8_t *out);

#endif
