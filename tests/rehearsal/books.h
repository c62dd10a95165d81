/* What all processes on the made-up card have taken of it, in a file that they share, and when it will be free again. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 256

typedef struct {
    volatile int pid;
    volatile int64_t bytes;
} Holder;

typedef struct {
    volatile int lock;
    volatile int64_t free_at;      /* ns of the monotonic clock: when all kernels asked for so far are done */
    volatile int64_t copies_done;  /* the same of copies, which the card makes beside its kernels */
    volatile int64_t busy;         /* ns of kernels, all in all */
    Holder holders[PROCESSES];
} Books;

static inline double setting(const char *name, double otherwise) {
    const char *said = getenv(name);
    return said ? atof(said) : otherwise;
}

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int64_t card_bytes(void) { return (int64_t)(setting("REHEARSAL_GIB", 16) * 1073741824.0); }

/* The card's capability, as 89 for 8.9; the newest CUDA that the driver supports, as 12080 for 12.8. */
static inline int tenfold(const char *name, double otherwise) { return (int)(10 * setting(name, otherwise) + 0.5); }
static inline int capability(void) { return tenfold("REHEARSAL_CAPABILITY", 9); }
static inline int cuda_version(void) {
    int version = tenfold("REHEARSAL_CUDA", 13);
    return 1000 * (version / 10) + 10 * (version % 10);
}

static inline Books *books(void) {
    static Books *found;
    if (!found) {
        const char *path = getenv("REHEARSAL_BOOKS");
        int file = open(path ? path : "/dev/shm/framekiln-rehearsal", O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof(Books))) abort();
        found = (Books *)mmap(0, sizeof(Books), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    return found;
}

static inline void take_books(Books *all) {
    for (int tries = 0, owner; (owner = __sync_val_compare_and_swap(&all->lock, 0, getpid()));)
        if (++tries > 100000) {
            tries = 0;
            if (kill(owner, 0) && errno == ESRCH) __sync_bool_compare_and_swap(&all->lock, owner, 0); /* killed with it */
            usleep(50);
        }
}

static inline void give_books(Books *all) { __sync_lock_release(&all->lock); }

/* Bytes in use by everybody. With the books taken; what dead processes held is free again. */
static inline int64_t bytes_used(Books *all) {
    int64_t sum = (int64_t)(setting("REHEARSAL_DISPLAY_MB", 300) * 1e6);
    for (int i = 0; i < PROCESSES; i++) {
        Holder *one = &all->holders[i];
        if (one->pid && kill(one->pid, 0) && errno == ESRCH) one->bytes = one->pid = 0;
        sum += one->bytes;
    }
    return sum;
}
