/* What torch asks of the driver itself. */
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
