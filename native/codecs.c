#include "codecs.h"
int sn_codec_valid(int codec, int parameter) { (void)codec; (void)parameter; return 0; }
size_t sn_encoded_bound(int codec, int parameter, size_t count) { (void)codec; (void)parameter; (void)count; return 0; }
size_t sn_encode(int codec, int parameter, const uint8_t *words, size_t count, size_t first, uint8_t *out, size_t capacity, size_t *consumed) { (void)codec; (void)parameter; (void)words; (void)count; (void)first; (void)out; (void)capacity; *consumed = 0; return 0; }
int sn_decode(int codec, int parameter, const uint8_t *body, size_t length, uint8_t *words, size_t count) { (void)codec; (void)parameter; (void)body; (void)length; (void)words; (void)count; return -1; }
void sn_roundtrip(int codec, int parameter, const uint8_t *words, size_t count, uint8_t *out) { (void)codec; (void)parameter; (void)words; (void)count; (void)out; }
