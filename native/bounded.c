/* Placeholder while the interface settles. */
typedef int sn_bounded_unused;
