// The CUDA runtime of a card that keeps books and computes nothing: memory is really taken, refused and given back,
// copies to the card are made, time passes as on a card of known rates. Kernels do nothing, and what is copied back
// from the card is zeros, so that no result means anything and every one is the same.
#include "books.h"
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
extern "C" {
#include "types.h"  // cut out of the headers of the CUDA that is rehearsed; see build.py
}

#define API extern "C" __attribute__((visibility("default"))) int

enum { SUCCESS = 0, NO_MEMORY = 2, NO_DEVICE = 100, NOT_RECORDED = 400, NOT_READY = 600 };
enum Kind { HOST_TO_CARD = 1, CARD_TO_CARD = 3 };

struct Size3 {
    unsigned x, y, z;
};
struct Stream {
    int64_t done;  // ns: when all that it was asked for is done
};
struct Event {
    int64_t at;
    bool recorded;
};

static std::recursive_mutex guard;
static std::map<char *, size_t> on_card, pinned;
static Stream first_stream;
static Holder *mine;
static int my_pid, last_error;

static int failed(int error) { return last_error = error; }

// Handles 0, 1 and 2 are the default stream, in its three ways of being asked for.
static Stream *stream_of(Stream *handle) { return (uintptr_t)handle < 16 ? &first_stream : handle; }

// A context takes memory as soon as a process touches the card.
static void enter() {
    if (mine && my_pid == getpid()) return;
    Books *all = books();
    take_books(all);
    bytes_used(all);
    for (int i = 0; i < PROCESSES && !(mine && my_pid == getpid()); i++)
        if (!all->holders[i].pid) {
            mine = &all->holders[i];
            mine->bytes = (int64_t)(setting("REHEARSAL_CONTEXT_MB", 450) * 1e6);
            mine->pid = my_pid = getpid();
        }
    give_books(all);
}

static void wait_until(int64_t moment) {
    for (int64_t left; (left = moment - now_ns()) > 0;) {
        timespec nap = {left / 1000000000, left % 1000000000};
        nanosleep(&nap, nullptr);
    }
}

// One kernel at a time, whoever asks; copies pass beside them.
static void work(Stream *handle, double ns, bool copies) {
    enter();
    Stream *stream = stream_of(handle);
    Books *all = books();
    take_books(all);
    volatile int64_t &queue = copies ? all->copies_done : all->free_at;
    int64_t begin = now_ns();
    if (stream->done > begin) begin = stream->done;
    if (queue > begin) begin = queue;
    stream->done = queue = begin + (int64_t)ns;
    if (!copies) all->busy += (int64_t)ns;
    give_books(all);
}

extern "C" void rehearsal_work(void *stream, double ns) { work((Stream *)stream, ns, false); }

// A kernel is taken for one that reads and writes 16 bytes a thread.
static int launch(Size3 grid, Size3 block, Stream *stream) {
    double threads = (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    work(stream, 3000 + 16 * threads / setting("REHEARSAL_GB_S", 960), false);
    return SUCCESS;
}

// The device

API cudaGetDeviceCount(int *count) {
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    *count = seen && (!*seen || !strcmp(seen, "-1")) ? 0 : 1;
    return *count ? SUCCESS : NO_DEVICE;
}

API cudaSetDevice(int) {
    enter();
    return SUCCESS;
}

API cudaGetDevice(int *device) {
    *device = 0;
    return SUCCESS;
}

API cudaDriverGetVersion(int *version) {
    *version = cuda_version();
    return SUCCESS;
}

API cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

API cudaGetDeviceProperties(cudaDeviceProp *known, int) {
    *known = {};
    const char *name = getenv("REHEARSAL_NAME");
    snprintf(known->name, sizeof known->name, "%s", name ? name : "Rehearsal Card");
    memcpy(known->uuid.bytes, "\x12\x34\x56\x78\x9a\xbc\xde\xf0\x12\x34\x56\x78\x9a\xbc\xde\xf0", 16);
    known->totalGlobalMem = card_bytes();
    known->major = capability() / 10;
    known->minor = capability() % 10;
    known->multiProcessorCount = 84;
    known->warpSize = 32;
    known->maxThreadsPerBlock = known->maxThreadsDim[0] = known->maxThreadsDim[1] = 1024;
    known->maxThreadsDim[2] = 64;
    known->maxGridSize[0] = 2147483647;
    known->maxGridSize[1] = known->maxGridSize[2] = 65535;
    known->maxThreadsPerMultiProcessor = 1536;
    known->maxBlocksPerMultiProcessor = 24;
    known->regsPerBlock = known->regsPerMultiprocessor = 65536;
    known->sharedMemPerBlock = 49152;
    known->sharedMemPerBlockOptin = 232448;
    known->sharedMemPerMultiprocessor = 233472;
    known->l2CacheSize = 64 << 20;
    known->pciBusID = 1;
    known->asyncEngineCount = 2;
    known->canMapHostMemory = known->concurrentKernels = known->unifiedAddressing = known->managedMemory = 1;
    known->cooperativeLaunch = known->hostRegisterSupported = known->memoryPoolsSupported = 1;
    return SUCCESS;
}

API cudaDeviceGetAttribute(int *value, int attribute, int) {
    static const std::map<int, int> known = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535},
        {7, 65535}, {8, 49152}, {10, 32}, {12, 65536}, {16, 84}, {39, 1536}, {41, 1}, {75, 9}, {81, 233472},
        {82, 65536}, {95, 1}, {97, 232448}, {106, 24}};  // enum cudaDeviceAttr
    auto found = known.find(attribute);
    *value = found == known.end() ? 0 : found->second;
    return SUCCESS;
}

API cudaDeviceGetPCIBusId(char *text, int length, int) {
    snprintf(text, length, "0000:01:00.0");
    return SUCCESS;
}

API cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

API cudaDeviceGetDefaultMemPool(void **pool, int) {
    *pool = (void *)1;
    return SUCCESS;
}

API cudaDeviceCanAccessPeer(int *can, int, int) {
    *can = 0;
    return SUCCESS;
}

static long nothing() { return 0; }

API cudaGetLastError() {
    int error = last_error;
    last_error = SUCCESS;
    return error;
}

API cudaPeekAtLastError() { return last_error; }

extern "C" __attribute__((visibility("default"))) const char *cudaGetErrorString(int error) {
    return error == NO_MEMORY ? "out of memory" : error ? "an error of the rehearsal" : "no error";
}

extern "C" __attribute__((visibility("default"))) const char *cudaGetErrorName(int error) {
    return error == NO_MEMORY ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
}

// Memory

static bool take(int64_t bytes) {
    enter();
    Books *all = books();
    take_books(all);
    bool fits = bytes < 0 || bytes_used(all) + bytes <= card_bytes();
    if (fits) mine->bytes += bytes;
    give_books(all);
    return fits;
}

static int reserve(void **made, size_t bytes) {
    *made = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*made == MAP_FAILED) return failed(NO_MEMORY);
    std::lock_guard<std::recursive_mutex> held(guard);
    on_card[(char *)*made] = bytes;
    return SUCCESS;
}

// Returns the bytes of a place, which is no place any more.
static size_t give_up(void *place) {
    std::lock_guard<std::recursive_mutex> held(guard);
    auto found = on_card.find((char *)place);
    if (found == on_card.end()) return 0;
    size_t bytes = found->second;
    munmap(place, bytes ? bytes : 1);
    on_card.erase(found);
    return bytes;
}

API cudaMalloc(void **made, size_t bytes) {
    *made = nullptr;
    return take(bytes) ? reserve(made, bytes) : failed(NO_MEMORY);
}

API cudaFree(void *place) {
    take(-(int64_t)give_up(place));
    return SUCCESS;
}

// The driver's own memory, with which segments of torch's allocator grow: addresses, and bytes that lie there

static int address_reserve(void **made, size_t bytes, size_t, void *, unsigned long long) { return reserve(made, bytes); }
static int address_free(void *place, size_t) { return give_up(place), SUCCESS; }
static int granularity(size_t *bytes, const void *, int) { return *bytes = 2 << 20, SUCCESS; }
static int create(size_t **made, size_t bytes, const void *, unsigned long long) {
    if (!take(bytes)) return NO_MEMORY;
    *made = new size_t(bytes);
    return SUCCESS;
}
static int release(size_t *made) {
    take(-(int64_t)*made);
    delete made;
    return SUCCESS;
}
static int unmap(void *place, size_t bytes) { return madvise(place, bytes, MADV_DONTNEED); }

API cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned, unsigned long long, int *status) {
    static const std::map<std::string, void *> known = {{"cuMemAddressReserve", (void *)address_reserve},
        {"cuMemAddressFree", (void *)address_free}, {"cuMemGetAllocationGranularity", (void *)granularity},
        {"cuMemCreate", (void *)create}, {"cuMemRelease", (void *)release}, {"cuMemUnmap", (void *)unmap}};
    auto found = known.find(name);
    *entry = found == known.end() ? (void *)nothing : found->second;
    if (status) *status = 0;
    return SUCCESS;
}

API cudaHostAlloc(void **made, size_t bytes, unsigned) {
    enter();
    if (posix_memalign(made, 4096, bytes ? bytes : 1)) return failed(NO_MEMORY);
    std::lock_guard<std::recursive_mutex> held(guard);
    pinned[(char *)*made] = bytes;
    return SUCCESS;
}

API cudaFreeHost(void *place) {
    std::lock_guard<std::recursive_mutex> held(guard);
    pinned.erase((char *)place);
    free(place);
    return SUCCESS;
}

static bool lies_in(std::map<char *, size_t> &places, const void *pointer) {
    std::lock_guard<std::recursive_mutex> held(guard);
    auto next = places.upper_bound((char *)pointer);
    if (next == places.begin()) return false;
    --next;
    return (char *)pointer < next->first + (next->second ? next->second : 1);
}

API cudaPointerGetAttributes(cudaPointerAttributes *told, const void *pointer) {
    *told = {};
    bool card = lies_in(on_card, pointer), host = lies_in(pinned, pointer);
    told->type = card ? 2 : host ? 1 : 0;
    if (card || host) told->devicePointer = (void *)pointer;
    if (host) told->hostPointer = (void *)pointer;
    return SUCCESS;
}

API cudaMemGetInfo(size_t *unused, size_t *total) {
    enter();
    Books *all = books();
    take_books(all);
    int64_t used = bytes_used(all);
    give_books(all);
    *total = card_bytes();
    *unused = used > (int64_t)*total ? 0 : *total - used;
    return SUCCESS;
}

// Bytes go to the card as they are and come back as zeros. Memory that is not page-locked is waited for.
static int copied(void *to, const void *from, size_t bytes, Stream *stream, bool wait) {
    if (!bytes) return SUCCESS;
    bool from_card = lies_in(on_card, from), to_card = lies_in(on_card, to), inside = from_card && to_card;
    bool locked = inside || lies_in(pinned, from_card ? to : from);
    double rate = inside ? setting("REHEARSAL_GB_S", 960) / 2 : setting("REHEARSAL_PCIE_GB_S", 20) / (locked ? 1 : 2);
    work(stream, 2000 + bytes / rate, !inside);
    if (from_card && !to_card) memset(to, 0, bytes);
    else memcpy(to, from, bytes);
    if (wait || !locked) wait_until(stream_of(stream)->done);
    return SUCCESS;
}

API cudaMemcpy(void *to, const void *from, size_t bytes, int) { return copied(to, from, bytes, nullptr, true); }
API cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, Stream *stream) {
    return copied(to, from, bytes, stream, false);
}

API cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, size_t rows, int,
                      Stream *stream) {
    for (size_t i = 0; i < rows; i++)
        copied((char *)to + i * to_step, (const char *)from + i * from_step, bytes, stream, false);
    return SUCCESS;
}

API cudaMemsetAsync(void *place, int value, size_t bytes, Stream *stream) {
    memset(place, value, bytes);
    work(stream, 2000 + bytes / setting("REHEARSAL_GB_S", 960), false);
    return SUCCESS;
}

API cudaMemset(void *place, int value, size_t bytes) { return cudaMemsetAsync(place, value, bytes, nullptr); }

API cudaGetSymbolAddress(void **place, const void *) {
    static char anywhere[1 << 20];
    *place = anywhere;
    return SUCCESS;
}

// Streams and events

API cudaStreamCreateWithPriority(Stream **made, unsigned, int) {
    *made = new Stream{0};
    return SUCCESS;
}

API cudaStreamCreate(Stream **made) { return cudaStreamCreateWithPriority(made, 0, 0); }
API cudaStreamQuery(Stream *stream) { return now_ns() >= stream_of(stream)->done ? SUCCESS : NOT_READY; }

API cudaStreamSynchronize(Stream *stream) {
    wait_until(stream_of(stream)->done);
    return SUCCESS;
}

API cudaDeviceSynchronize() {
    wait_until(books()->free_at);
    wait_until(books()->copies_done);
    return cudaStreamSynchronize(nullptr);
}

API cudaStreamWaitEvent(Stream *handle, Event *event, unsigned) {
    Stream *stream = stream_of(handle);
    if (event->at > stream->done) stream->done = event->at;
    return SUCCESS;
}

API cudaStreamGetPriority(Stream *, int *priority) {
    *priority = 0;
    return SUCCESS;
}

API cudaStreamIsCapturing(Stream *, int *status) {
    *status = 0;
    return SUCCESS;
}

API cudaStreamGetCaptureInfo(Stream *, int *status, unsigned long long *id, void **graph, const void **nodes,
                             const void **edges, size_t *count) {
    *status = 0;
    if (id) *id = 0;
    if (graph) *graph = nullptr;
    if (nodes) *nodes = nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = 0;
    return SUCCESS;
}

API cudaLaunchHostFunc(Stream *, void (*function)(void *), void *data) {
    function(data);
    return SUCCESS;
}

API cudaStreamAddCallback(Stream *stream, void (*function)(Stream *, int, void *), void *data, unsigned) {
    function(stream, SUCCESS, data);
    return SUCCESS;
}

API cudaEventCreateWithFlags(Event **made, unsigned) {
    *made = new Event{0, false};
    return SUCCESS;
}

API cudaEventCreate(Event **made) { return cudaEventCreateWithFlags(made, 0); }

API cudaEventDestroy(Event *event) {
    delete event;
    return SUCCESS;
}

API cudaEventRecord(Event *event, Stream *stream) {
    int64_t now = now_ns(), done = stream_of(stream)->done;
    *event = {done > now ? done : now, true};
    return SUCCESS;
}

API cudaEventRecordWithFlags(Event *event, Stream *stream, unsigned) { return cudaEventRecord(event, stream); }
API cudaEventQuery(Event *event) { return now_ns() >= event->at ? SUCCESS : NOT_READY; }

API cudaEventSynchronize(Event *event) {
    wait_until(event->at);
    return SUCCESS;
}

API cudaEventElapsedTime(float *milliseconds, Event *from, Event *to) {
    *milliseconds = 0;
    if (!from->recorded || !to->recorded) return failed(NOT_RECORDED);
    if (now_ns() < from->at || now_ns() < to->at) return NOT_READY;
    *milliseconds = (to->at - from->at) / 1e6f;
    return SUCCESS;
}

// Kernels

API cudaFuncGetAttributes(cudaFuncAttributes *told, const void *) {
    *told = {};
    told->maxThreadsPerBlock = 1024;
    told->numRegs = 32;
    told->ptxVersion = told->binaryVersion = 90;
    told->maxDynamicSharedSizeBytes = 232448;
    return SUCCESS;
}

API cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads, size_t) {
    *blocks = threads > 0 && threads < 1536 ? 1536 / threads : 1;
    return SUCCESS;
}

API cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int threads, size_t bytes, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, bytes);
}

struct Launch {
    Size3 grid, block;
    size_t shared;
    Stream *stream;
};

API cudaLaunchKernel(const void *, Size3 grid, Size3 block, void **, size_t, Stream *stream) { return launch(grid, block, stream); }
API cudaLaunchCooperativeKernel(const void *, Size3 grid, Size3 block, void **, size_t, Stream *stream) {
    return launch(grid, block, stream);
}
API cudaLaunchKernelExC(const Launch *how, const void *, void **) { return launch(how->grid, how->block, how->stream); }
API __cudaLaunchKernel(void *, Size3 grid, Size3 block, void **, size_t, Stream *stream) { return launch(grid, block, stream); }

API __cudaGetKernel(void **kernel, const void *function) {
    *kernel = (void *)function;
    return SUCCESS;
}

// What compiled code calls for `kernel<<<grid, block>>>`: what is pushed here is popped by the kernel's own stub.
static thread_local Launch waiting[16];
static thread_local int count_waiting;

extern "C" __attribute__((visibility("default"))) unsigned __cudaPushCallConfiguration(Size3 grid, Size3 block, size_t shared, Stream *stream) {
    waiting[count_waiting++] = {grid, block, shared, stream};
    return SUCCESS;
}

API __cudaPopCallConfiguration(Size3 *grid, Size3 *block, size_t *shared, void *stream) {
    Launch last = waiting[--count_waiting];
    *grid = last.grid;
    *block = last.block;
    *shared = last.shared;
    *(Stream **)stream = last.stream;
    return SUCCESS;
}

extern "C" __attribute__((visibility("default"))) void **__cudaRegisterFatBinary(void *) {
    static void *handle[4];
    return handle;
}
