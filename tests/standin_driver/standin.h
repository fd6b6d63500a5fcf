/* A stand-in for libcuda.so.1 on host memory: what the sources here share. docs/testing.md says
 * what it is for. Types and numbers are those of the driver's interface, written down anew. */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef int Result;
typedef uint64_t Address;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
};

enum { MAX_DEVICES = 8, MAX_PARAMETERS = 64, MAX_NAME = 128, SMALL_SHARED = 48 * 1024 };

/* Every handle begins with the mark of its kind, which is cleared when it is destroyed, and the
 * device in whose context it was made. */
enum { CONTEXT = 0x11, STREAM, EVENT, MODULE, FUNCTION, GRAPH, NODE, EXECUTABLE };
typedef struct {
  int kind, device;
} Handle;

typedef struct Module Module;
typedef struct Function {
  Handle handle;
  Module *module;
  char name[MAX_NAME];
  int parameters;
  size_t sizes[MAX_PARAMETERS];
  size_t offsets[MAX_PARAMETERS];
  unsigned shared_limit;
  struct Function *next;
} Function;

struct Module {
  Handle handle;
  Function *functions;
  int executables; /* instantiated graphs that launch its functions */
};

/* A kernel node: its parameters are copied when it is made or changed, as the driver does. */
typedef struct Node {
  Handle handle;
  Function *function;
  unsigned grid[3], block[3], shared;
  unsigned char *values[MAX_PARAMETERS];
  struct Node *after; /* the node that it depends on; graphs here are chains */
  int programmatic;
  struct Node *next;
} Node;

typedef struct {
  Handle handle;
  Node *first, *last;
} Graph;

typedef struct {
  Handle handle;
  Node *first; /* copies */
} Executable;

/* state.c */
/* What every call begins with: injected errors, and those that stick to the device. */
Result enter(const char *call);
Result enter_on(const char *call, int device);
int is(const void *handle, int kind);
/* Likewise, and it is a violation where another device's context is current. */
int is_here(const void *handle, int kind);
void violation(const char *format, ...);
void fail_execution(Result error, int device); /* every later call for it gives this error */
int capability(void);
void held(int change); /* things that the caller has to give back are more or fewer */

/* memory.c */
/* NULL where no allocation that the device reaches holds the range. */
void *host_of(Address address, size_t nbytes, int device);

/* execution.c */
Result run(Executable *executable);
Result pending(int device); /* SUCCESS, NOT_READY */

/* entry.c */
int current_device(void); /* of the calling thread's context; -1 where none is current */
void made(Handle *handle, int kind); /* in the current context */

#define EXPORT __attribute__((visibility("default")))

#endif
