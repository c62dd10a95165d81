/* What torch and Triton ask of the driver itself. Triton's code is compiled as for a real card, and launches nothing. */
#include <stdlib.h>

int cuInit(unsigned flags) { return 0; }

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return 0;
}

int cuCtxGetCurrent(void **context) {
    *context = (void *)1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

int cuGetErrorString(int error, const char **text) {
    *text = "rehearsal";
    return 0;
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {  /* enum CUdevice_attribute */
        case 10: return *value = 32, 0;      /* threads of a warp */
        case 12: return *value = 65536, 0;   /* registers of a block */
        case 13: case 36: return *value = 1500000, 0;  /* kHz of the processors, and of the memory */
        case 16: return *value = 84, 0;      /* multiprocessors */
        case 37: return *value = 384, 0;     /* bits of the memory's bus */
        case 81: case 97: return *value = 232448, 0;   /* shared bytes of a multiprocessor, and of a block */
        default: return *value = 0;
    }
}

int cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = attribute ? 32 : 1024;  /* registers and the like; threads of a block */
    return 0;
}

int cuPointerGetAttribute(void **value, int attribute, void *pointer) {
    *value = pointer;
    return 0;
}

int cuLaunchKernelEx(const void *how, void *function, void **arguments, void **more) { return 0; }
