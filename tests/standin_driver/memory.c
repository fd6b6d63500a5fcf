/* Device and pinned memory: host allocations that are kept account of. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum { POISON = 0xA5 };

typedef struct Allocation {
  unsigned char *begin;
  size_t nbytes;
  int on_device, device;
  struct Allocation *next;
} Allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocation *allocations;
static size_t taken[MAX_DEVICES];
static long allocating_calls;

static size_t capacity(void) {
  const char *asked = getenv("STANDIN_MEMORY");
  return asked ? (size_t)atoll(asked) : (size_t)1 << 30;
}

void *host_of(Address address, size_t nbytes, int device) {
  void *found = NULL;
  pthread_mutex_lock(&lock);
  for (Allocation *one = allocations; one; one = one->next) {
    Address begin = (Address)(uintptr_t)one->begin;
    if (begin <= address && address - begin <= one->nbytes &&
        nbytes <= one->nbytes - (address - begin) && (!one->on_device || one->device == device))
      found = (void *)(uintptr_t)address;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

static Result allocate(void **begin, size_t nbytes, int on_device) {
  int device = current_device();
  if (!nbytes) return INVALID_VALUE;
  if (device < 0) return INVALID_CONTEXT;
  if (on_device && taken[device] + nbytes > capacity()) return OUT_OF_MEMORY;
  Allocation *one = malloc(sizeof *one);
  if (!one || posix_memalign((void **)&one->begin, 512, nbytes)) return OUT_OF_MEMORY;
  /* Memory holds nothing in particular until it is written. */
  memset(one->begin, POISON, nbytes);
  one->nbytes = nbytes;
  one->on_device = on_device;
  one->device = device;
  pthread_mutex_lock(&lock);
  one->next = allocations;
  allocations = one;
  if (on_device) taken[device] += nbytes;
  allocating_calls++;
  pthread_mutex_unlock(&lock);
  held(1);
  *begin = one->begin;
  return SUCCESS;
}

static Result release(void *begin, int on_device) {
  Result result = INVALID_VALUE;
  if (current_device() >= 0 && pending(current_device()))
    violation("memory is freed while launches are queued");
  pthread_mutex_lock(&lock);
  for (Allocation **at = &allocations; *at; at = &(*at)->next) {
    Allocation *one = *at;
    if (one->begin != begin || one->on_device != on_device) continue;
    *at = one->next;
    if (on_device) taken[one->device] -= one->nbytes;
    memset(one->begin, POISON, one->nbytes);
    free(one->begin);
    free(one);
    result = SUCCESS;
    break;
  }
  pthread_mutex_unlock(&lock);
  if (result) violation("freed %p, which is no such allocation", begin);
  if (!result) held(-1);
  return result;
}

EXPORT Result cuMemGetInfo(size_t *free_nbytes, size_t *total) {
  Result error = enter("cuMemGetInfo");
  if (error) return error;
  if (current_device() < 0) return INVALID_CONTEXT;
  *total = capacity();
  *free_nbytes = *total - taken[current_device()];
  return SUCCESS;
}

EXPORT Result cuMemAlloc(Address *address, size_t nbytes) {
  Result error = enter("cuMemAlloc");
  return error ? error : allocate((void **)address, nbytes, 1);
}

EXPORT Result cuMemFree(Address address) {
  Result error = enter("cuMemFree");
  return error ? error : release((void *)(uintptr_t)address, 1);
}

EXPORT Result cuMemHostAlloc(void **begin, size_t nbytes, unsigned flags) {
  Result error = enter("cuMemHostAlloc");
  return error ? error : allocate(begin, nbytes, 0);
}

EXPORT Result cuMemFreeHost(void *begin) {
  Result error = enter("cuMemFreeHost");
  return error ? error : release(begin, 0);
}

EXPORT Result cuMemsetD8Async(Address to, unsigned char value, size_t nbytes, void *stream) {
  Result error = enter("cuMemsetD8Async");
  if (error) return error;
  void *begin = host_of(to, nbytes, current_device());
  if (!begin || !is_here(stream, STREAM)) return INVALID_VALUE;
  memset(begin, value, nbytes);
  return SUCCESS;
}

EXPORT Result cuMemcpyHtoDAsync(Address to, const void *from, size_t nbytes, void *stream) {
  Result error = enter("cuMemcpyHtoDAsync");
  if (error) return error;
  void *begin = host_of(to, nbytes, current_device());
  if (!begin || !from || !is_here(stream, STREAM)) return INVALID_VALUE;
  memcpy(begin, from, nbytes);
  return SUCCESS;
}

EXPORT Result cuMemcpyDtoHAsync(void *to, Address from, size_t nbytes, void *stream) {
  Result error = enter("cuMemcpyDtoHAsync");
  if (error) return error;
  void *begin = host_of(from, nbytes, current_device());
  if (!begin || !to || !is_here(stream, STREAM)) return INVALID_VALUE;
  memcpy(to, begin, nbytes);
  return SUCCESS;
}

/* Bytes of device memory in use on all devices, and calls so far that took memory of any kind. */
EXPORT size_t standin_taken(void) {
  size_t all = 0;
  for (int device = 0; device < MAX_DEVICES; device++) all += taken[device];
  return all;
}
EXPORT long standin_allocating_calls(void) { return allocating_calls; }
