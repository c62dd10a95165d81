/* cuBLAS: products that take as long as their arithmetic would, and are not computed. */
#include "books.h"

void rehearsal_work(void *stream, double ns);

typedef struct {
    void *stream;
    int mode;
} Handle;

static int product(Handle *handle, double m, double n, double k, double count) {
    rehearsal_work(handle->stream, 3000 + 2 * m * n * k * count / (setting("REHEARSAL_TFLOPS", 50) * 1e3));
    return 0;
}

int cublasCreate_v2(Handle **handle) {
    *handle = (Handle *)calloc(1, sizeof(Handle));
    return 0;
}

int cublasSetStream_v2(Handle *handle, void *stream) {
    handle->stream = stream;
    return 0;
}

int cublasGetStream_v2(Handle *handle, void **stream) {
    *stream = handle->stream;
    return 0;
}

int cublasSetMathMode(Handle *handle, int mode) {
    handle->mode = mode;
    return 0;
}

int cublasGetMathMode(Handle *handle, int *mode) {
    *mode = handle->mode;
    return 0;
}

int cublasGetPointerMode_v2(Handle *handle, int *mode) {
    *mode = 0;
    return 0;
}

#define SIZES Handle *handle, int left, int right, int m, int n, int k
#define REAL void *alpha, void *a, int lda, long long sa, void *b, int ldb, long long sb, void *beta, void *c, int ldc, long long sc

int cublasSgemm_v2(SIZES) { return product(handle, m, n, k, 1); }
int cublasDgemm_v2(SIZES) { return product(handle, m, n, k, 1); }
int cublasSgemmEx(SIZES) { return product(handle, m, n, k, 1); }
int cublasGemmEx(SIZES) { return product(handle, m, n, k, 1); }
int cublasSgemmStridedBatched(SIZES, REAL, int count) { return product(handle, m, n, k, count); }

int cublasGemmStridedBatchedEx(SIZES, void *alpha, void *a, int ta, int lda, long long sa, void *b, int tb, int ldb,
                               long long sb, void *beta, void *c, int tc, int ldc, long long sc, int count) {
    return product(handle, m, n, k, count);
}
