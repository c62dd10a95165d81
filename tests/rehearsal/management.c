/* NVML: one card, whose memory and use are in the books. */
#include "books.h"
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7 };

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute;
} Running;

static int card;

static int64_t used_now(void) {
    Books *all = books();
    take_books(all);
    int64_t bytes = bytes_used(all);
    give_books(all);
    return bytes;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    const char *version = getenv("REHEARSAL_DRIVER");
    snprintf(text, length, "%s", version ? version : "580.00");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = cuda_version();
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = &card;
    return index ? INVALID : SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle) { return nvmlDeviceGetHandleByIndex_v2(0, handle); }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) { return nvmlDeviceGetHandleByIndex_v2(0, handle); }

int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    const char *name = getenv("REHEARSAL_NAME");
    snprintf(text, length, "%s", name ? name : "Rehearsal Card");
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    *major = capability() / 10;
    *minor = capability() % 10;
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    snprintf(text, length, "GPU-12345678-9abc-def0-1234-56789abcdef0");
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    memory[0] = card_bytes();
    memory[2] = used_now();
    memory[1] = memory[0] - memory[2];
    return SUCCESS;
}

/* Of the time since the question before, but at least a tenth of a second: real cards look back as far. */
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    static int64_t asked, busy;
    static unsigned percent;
    int64_t now = now_ns(), work = books()->busy;
    if (now - asked > 100000000) {
        double share = asked ? 100.0 * (work - busy) / (now - asked) : 0;
        percent = share > 100 ? 100 : (unsigned)share;
        asked = now;
        busy = work;
    }
    rates[0] = percent;
    rates[1] = percent / 2;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    unsigned rates[2];
    nvmlDeviceGetUtilizationRates(handle, rates);
    *milliwatts = 40000 + 3000 * rates[0];
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    *celsius = 45;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureV(void *handle, unsigned *told) {
    told[2] = 45;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Running *found) {
    Books *all = books();
    unsigned room = *count, number = 0;
    for (int i = 0; i < PROCESSES; i++) {
        if (!all->holders[i].pid) continue;
        if (number < room && found)
            found[number] = (Running){all->holders[i].pid, all->holders[i].bytes, -1, -1};
        number++;
    }
    *count = number;
    return number > room ? TOO_SMALL : SUCCESS;
}

/* torch asks for these by name when it first uses NVML. */
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *found) {
    *count = 0;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(void) { return SUCCESS; } /* the state stays as torch sets it: not supported */
int nvmlDeviceGetGpuFabricInfo(void) { return NOT_SUPPORTED; }
