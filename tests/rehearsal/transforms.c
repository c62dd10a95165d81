/* cuFFT: plans that need no workspace. */
#include <stddef.h>

int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *in, long long in_step, long long in_next, int in_type,
                        long long *out, long long out_step, long long out_next, int out_type, long long count,
                        size_t *workspace, int compute_type) {
    *workspace = 0;
    return 0;
}
