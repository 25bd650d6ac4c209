#include "batch_io.h"
int sn_vxlan_send(int fd, uint32_t address, uint16_t port, uint32_t vni, uint8_t *data, const uint32_t *offsets, const uint32_t *lengths, uint32_t count, int gso) { (void)fd; (void)address; (void)port; (void)vni; (void)data; (void)offsets; (void)lengths; (void)count; (void)gso; return -1; }
int sn_enable_gro(int fd) { (void)fd; return 0; }
int sn_vxlan_receive(int fd, uint32_t vni, uint8_t *buffer, size_t slot, uint32_t max_messages, uint32_t *offsets, uint32_t *lengths, uint32_t max_frames, sn_source *sources, uint32_t *frames, uint32_t *rejected) { (void)fd; (void)vni; (void)buffer; (void)slot; (void)max_messages; (void)offsets; (void)lengths; (void)max_frames; (void)sources; (void)frames; (void)rejected; return -1; }
int sn_timer_create(void) { return -1; }
int sn_timer_set(int fd, uint64_t at_ns) { (void)fd; (void)at_ns; return -1; }
