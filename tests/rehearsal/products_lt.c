/* cuBLASLt: the same. An operand's shape is all that is kept of it. */
#include "books.h"
#include <math.h>
#include <string.h>

void rehearsal_work(void *stream, double ns);

typedef struct {
    double rows, columns;
} Layout;

int cublasLtCreate(void **made) { return !(*made = calloc(1, 64)); }
int cublasLtMatmulDescCreate(void **made) { return !(*made = calloc(1, 64)); }
int cublasLtMatmulPreferenceCreate(void **made) { return !(*made = calloc(1, 64)); }
size_t cublasLtGetVersion(void) { return 130000; }

int cublasLtMatrixLayoutCreate(Layout **made, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    *made = (Layout *)calloc(1, sizeof(Layout));
    **made = (Layout){(double)rows, (double)columns};
    return 0;
}

/* One way to compute it, that needs no workspace. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *what, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, void *found, int *count) {
    memset(found, 0, 64);
    *count = 1;
    return 0;
}

/* m k, k n and m n: the square root of their product is m n k, whichever of them are transposed. */
int cublasLtMatmul(void *handle, void *what, void *alpha, void *a, Layout *of_a, void *b, Layout *of_b, void *beta,
                   void *c, Layout *of_c, void *d, Layout *of_d, void *way, void *space, size_t bytes, void *stream) {
    double sizes = of_a->rows * of_a->columns * of_b->rows * of_b->columns * of_d->rows * of_d->columns;
    rehearsal_work(stream, 3000 + 2 * sqrt(sizes) / (setting("REHEARSAL_TFLOPS", 50) * 1e3));
    return 0;
}
