/* Modules: parameter sizes and architecture are read from the image, a cubin or one that
 * cubins.py makes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum { CUDA_MACHINE = 190, WITH_SIZE = 4, PARAMETER = 0x17 };

static uint64_t number(const unsigned char *at, int nbytes) {
  uint64_t value = 0;
  memcpy(&value, at, nbytes);
  return value;
}

static void read_parameters(Function *function, const unsigned char *at, size_t nbytes) {
  const unsigned char *end = at + nbytes;
  while (at + 4 <= end) {
    int form = at[0], attribute = at[1];
    size_t size = number(at + 2, 2);
    at += 4;
    if (form != WITH_SIZE) continue;
    if (attribute == PARAMETER && size >= 12) {
      unsigned ordinal = number(at + 4, 2);
      if (ordinal < MAX_PARAMETERS) {
        function->offsets[ordinal] = number(at + 6, 2);
        function->sizes[ordinal] = number(at + 8, 4) >> 18;
        if (function->parameters <= (int)ordinal) function->parameters = ordinal + 1;
      }
    }
    at += size;
  }
}

EXPORT Result cuModuleLoadData(Module **module, const void *content) {
  Result error = enter("cuModuleLoadData");
  if (error) return error;
  const unsigned char *image = content;
  if (!image || memcmp(image, "\177ELF", 4) || number(image + 18, 2) != CUDA_MACHINE)
    return INVALID_IMAGE;
  if ((int)(number(image + 48, 4) >> 8 & 0xFF) != capability()) return NO_BINARY_FOR_GPU;
  const unsigned char *table = image + number(image + 40, 8);
  size_t entry = number(image + 58, 2), count = number(image + 60, 2);
  const unsigned char *names = image + number(table + number(image + 62, 2) * entry + 24, 8);
  Module *loaded = calloc(1, sizeof *loaded);
  made(&loaded->handle, MODULE);
  for (size_t i = 0; i < count; i++) {
    const unsigned char *header = table + i * entry;
    const char *name = (const char *)names + number(header, 4);
    if (strncmp(name, ".nv.info.", 9)) continue;
    Function *function = calloc(1, sizeof *function);
    made(&function->handle, FUNCTION);
    function->module = loaded;
    function->shared_limit = SMALL_SHARED;
    snprintf(function->name, MAX_NAME, "%s", name + 9);
    read_parameters(function, image + number(header + 24, 8), number(header + 32, 8));
    function->next = loaded->functions;
    loaded->functions = function;
  }
  held(1);
  *module = loaded;
  return SUCCESS;
}

EXPORT Result cuModuleGetFunction(Function **function, Module *module, const char *name) {
  Result error = enter("cuModuleGetFunction");
  if (error) return error;
  if (!is_here(module, MODULE)) return INVALID_HANDLE;
  for (Function *one = module->functions; one; one = one->next)
    if (!strcmp(one->name, name)) {
      *function = one;
      return SUCCESS;
    }
  return NOT_FOUND;
}

EXPORT Result cuModuleUnload(Module *module) {
  Result error = enter("cuModuleUnload");
  if (error) return error;
  if (!is_here(module, MODULE)) return INVALID_HANDLE;
  if (module->executables) violation("a module is unloaded before a graph that launches it");
  module->handle.kind = 0;
  held(-1);
  return SUCCESS;
}

EXPORT Result cuFuncGetParamInfo(Function *function, size_t index, size_t *offset, size_t *size) {
  Result error = enter("cuFuncGetParamInfo");
  if (error) return error;
  if (!is_here(function, FUNCTION)) return INVALID_HANDLE;
  if (index >= (size_t)function->parameters) return INVALID_VALUE;
  *offset = function->offsets[index];
  if (size) *size = function->sizes[index];
  return SUCCESS;
}

EXPORT Result cuFuncSetAttribute(Function *function, int attribute, int value) {
  Result error = enter("cuFuncSetAttribute");
  if (error) return error;
  if (!is_here(function, FUNCTION) || attribute != 8 || value < 0 || value > 232448)
    return INVALID_VALUE;
  function->shared_limit = value;
  return SUCCESS;
}

EXPORT Result cuFuncGetAttribute(int *value, int attribute, Function *function) {
  Result error = enter("cuFuncGetAttribute");
  if (error) return error;
  if (!is_here(function, FUNCTION)) return INVALID_HANDLE;
  *value = attribute == 8 ? (int)function->shared_limit : 0;
  return SUCCESS;
}

EXPORT Result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                     const uint64_t *extents, const uint64_t *strides,
                                     const uint32_t *box, const uint32_t *steps, int interleave,
                                     int swizzle, int promotion, int fill) {
  Result error = enter("cuTensorMapEncodeTiled");
  if (error) return error;
  if (rank < 1 || rank > 5 || (uintptr_t)address % 16) return INVALID_VALUE;
  for (unsigned i = 0; i < rank; i++)
    if (!extents[i] || !box[i] || box[i] > 256 || !steps[i] || (i && strides[i - 1] % 16))
      return INVALID_VALUE;
  memset(map, 0, 128);
  memcpy(map, &address, 8);
  return SUCCESS;
}
