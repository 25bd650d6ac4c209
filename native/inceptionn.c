/* Placeholder while the interface settles. */
typedef int sn_inceptionn_unused;
