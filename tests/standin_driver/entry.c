/* Devices, contexts, streams, events, and the one function that callers look for by name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

static Handle contexts[MAX_DEVICES];
static int initialised;
static int retained[MAX_DEVICES];
static __thread int current = -1;

int current_device(void) { return current; }

void made(Handle *handle, int kind) {
  handle->kind = kind;
  handle->device = current;
}

EXPORT Result cuInit(unsigned flags) {
  Result error = enter("cuInit");
  if (error) return error;
  const char *count = getenv("STANDIN_DEVICES");
  if (count && !atoi(count)) return NO_DEVICE;
  initialised = 1;
  return SUCCESS;
}

/* STANDIN_DRIVER, 13000 where it isn't set. */
EXPORT Result cuDriverGetVersion(int *version) {
  const char *asked = getenv("STANDIN_DRIVER");
  *version = asked ? atoi(asked) : 13000;
  return SUCCESS;
}

static int devices(void) {
  const char *count = getenv("STANDIN_DEVICES");
  int asked = count ? atoi(count) : 1;
  return asked < MAX_DEVICES ? asked : MAX_DEVICES;
}

EXPORT Result cuDeviceGetCount(int *count) {
  *count = devices();
  return initialised ? SUCCESS : NOT_INITIALIZED;
}

EXPORT Result cuDeviceGet(int *device, int ordinal) {
  if (!initialised) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

EXPORT Result cuDeviceGetName(char *name, int length, int device) {
  strncpy(name, "Stand-in", length);
  return SUCCESS;
}

EXPORT Result cuDeviceTotalMem(size_t *nbytes, int device) {
  const char *asked = getenv("STANDIN_MEMORY");
  *nbytes = asked ? (size_t)atoll(asked) : (size_t)1 << 30;
  return SUCCESS;
}

EXPORT Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case 75: *value = capability() / 10; return SUCCESS;
    case 76: *value = capability() % 10; return SUCCESS;
    case 16: *value = 132; return SUCCESS;
    case 97: *value = 232448; return SUCCESS;
  }
  return INVALID_VALUE;
}

EXPORT Result cuDevicePrimaryCtxRetain(Handle **context, int device) {
  Result error = enter_on("cuDevicePrimaryCtxRetain", device);
  if (error) return error;
  __atomic_fetch_add(&retained[device], 1, __ATOMIC_SEQ_CST);
  held(1);
  contexts[device] = (Handle){CONTEXT, device};
  *context = &contexts[device];
  return SUCCESS;
}

EXPORT Result cuDevicePrimaryCtxRelease(int device) {
  if (__atomic_fetch_sub(&retained[device], 1, __ATOMIC_SEQ_CST) <= 0)
    violation("a context is released that nobody holds");
  held(-1);
  return SUCCESS;
}

EXPORT Result cuCtxSetCurrent(Handle *wanted) {
  if (wanted && !is(wanted, CONTEXT)) return INVALID_CONTEXT;
  Result error = enter_on("cuCtxSetCurrent", wanted ? wanted->device : -1);
  if (error) return error;
  current = wanted ? wanted->device : -1;
  return SUCCESS;
}

static Result make(Handle **handle, int kind) {
  if (current < 0) return INVALID_CONTEXT;
  *handle = malloc(sizeof **handle);
  made(*handle, kind);
  held(1);
  return SUCCESS;
}

static Result destroy(Handle *handle, int kind) {
  if (!is_here(handle, kind)) return INVALID_HANDLE;
  handle->kind = 0;
  held(-1);
  return SUCCESS;
}

EXPORT Result cuStreamCreate(Handle **stream, unsigned flags) {
  Result error = enter("cuStreamCreate");
  if (!error && flags != 1) violation("a stream waits for the null stream");
  return error ? error : make(stream, STREAM);
}

EXPORT Result cuStreamDestroy(Handle *stream) {
  Result error = enter("cuStreamDestroy");
  return error ? error : destroy(stream, STREAM);
}

EXPORT Result cuStreamQuery(Handle *stream) {
  Result error = enter("cuStreamQuery");
  if (error) return error;
  return is_here(stream, STREAM) ? pending(stream->device) : INVALID_HANDLE;
}

EXPORT Result cuStreamSynchronize(Handle *stream) {
  Result error = enter("cuStreamSynchronize");
  if (error) return error;
  if (is(stream, STREAM) && pending(stream->device))
    violation("somebody waits for a stream that doesn't move");
  return is_here(stream, STREAM) ? SUCCESS : INVALID_HANDLE;
}

EXPORT Result cuEventCreate(Handle **event, unsigned flags) {
  Result error = enter("cuEventCreate");
  return error ? error : make(event, EVENT);
}

EXPORT Result cuEventRecord(Handle *event, Handle *stream) {
  Result error = enter("cuEventRecord");
  if (error) return error;
  return is_here(event, EVENT) && is_here(stream, STREAM) ? SUCCESS : INVALID_HANDLE;
}

EXPORT Result cuEventSynchronize(Handle *event) {
  Result error = enter("cuEventSynchronize");
  if (error) return error;
  return is_here(event, EVENT) ? SUCCESS : INVALID_HANDLE;
}

EXPORT Result cuEventDestroy(Handle *event) {
  Result error = enter("cuEventDestroy");
  return error ? error : destroy(event, EVENT);
}

static const struct {
  Result code;
  const char *name, *meaning;
} errors[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

EXPORT Result cuGetErrorString(Result code, const char **meaning) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) {
      *meaning = errors[i].meaning;
      return SUCCESS;
    }
  *meaning = "an error";
  return SUCCESS;
}

EXPORT Result cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags,
                                  int *status) {
  /* Names of older interfaces are asked for too; only what is called has to be there. */
  static const char *aliases[][2] = {{"cuGraphInstantiate", "cuGraphInstantiateWithFlags"}};
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (!strcmp(symbol, aliases[i][0])) symbol = aliases[i][1];
  Dl_info info;
  void *library = NULL;
  if (dladdr((void *)cuInit, &info)) library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  *found = library ? dlsym(library, symbol) : NULL;
  if (library) dlclose(library);
  if (status) *status = *found ? 0 : 1;
  return *found ? SUCCESS : NOT_FOUND;
}
