/* Graphs of kernel nodes, and their executables. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum { KERNEL_NODE = 0, PROGRAMMATIC = 1, PROGRAMMATIC_PORT = 1 };

/* The parameters of a kernel node, as both ways to give them begin. */
typedef struct {
  Function *function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel, *context;
} KernelParameters;

typedef struct {
  int type, reserved[3];
  union {
    long long room[29];
    KernelParameters kernel;
  };
  long long reserved_2;
} NodeParameters;

typedef struct {
  unsigned char from_port, to_port, type, reserved[5];
} Edge;

static void forget_values(Node *node) {
  for (int i = 0; i < MAX_PARAMETERS; i++) free(node->values[i]);
  memset(node->values, 0, sizeof node->values);
}

static Result take(Node *node, const KernelParameters *given) {
  Function *function = given->function;
  if (!is_here(function, FUNCTION) || !is_here(function->module, MODULE)) return INVALID_HANDLE;
  unsigned long threads = 1;
  for (int axis = 0; axis < 3; axis++) {
    if (!given->grid[axis] || !given->block[axis] || (axis && given->grid[axis] > 65535))
      return INVALID_VALUE;
    threads *= given->block[axis];
  }
  if (threads > 1024 || given->shared > function->shared_limit) return INVALID_VALUE;
  if (given->extra || (function->parameters && !given->parameters)) return INVALID_VALUE;
  forget_values(node);
  for (int i = 0; i < function->parameters; i++) {
    if (!given->parameters[i]) return INVALID_VALUE;
    node->values[i] = malloc(function->sizes[i]);
    memcpy(node->values[i], given->parameters[i], function->sizes[i]);
  }
  node->function = function;
  memcpy(node->grid, given->grid, sizeof node->grid);
  memcpy(node->block, given->block, sizeof node->block);
  node->shared = given->shared;
  return SUCCESS;
}

EXPORT Result cuGraphCreate(Graph **graph, unsigned flags) {
  Result error = enter("cuGraphCreate");
  if (error) return error;
  *graph = calloc(1, sizeof **graph);
  made(&(*graph)->handle, GRAPH);
  held(1);
  return SUCCESS;
}

EXPORT Result cuGraphAddNode(Node **added, Graph *graph, Node *const *dependencies,
                             const Edge *edges, size_t count, const NodeParameters *given) {
  Result error = enter("cuGraphAddNode");
  if (error) return error;
  if (!is_here(graph, GRAPH)) return INVALID_HANDLE;
  if (given->type != KERNEL_NODE || count > 1) return INVALID_VALUE;
  if (count && (!is(dependencies[0], NODE) || dependencies[0] != graph->last)) {
    violation("a node depends on another than the one before it");
    return INVALID_VALUE;
  }
  if (!count && graph->last) violation("a node depends on nothing, but isn't the first");
  Node *node = calloc(1, sizeof *node);
  made(&node->handle, NODE);
  error = take(node, &given->kernel);
  if (error) {
    free(node);
    return error;
  }
  if (count) {
    node->after = dependencies[0];
    if (edges && edges[0].type == PROGRAMMATIC) {
      if (edges[0].from_port != PROGRAMMATIC_PORT) return INVALID_VALUE;
      node->programmatic = 1;
    } else if (edges && (edges[0].type || edges[0].from_port || edges[0].to_port)) {
      return INVALID_VALUE;
    }
    graph->last->next = node;
  } else {
    graph->first = node;
  }
  graph->last = node;
  *added = node;
  return SUCCESS;
}

EXPORT Result cuGraphKernelNodeSetParams(Node *node, const KernelParameters *given) {
  Result error = enter("cuGraphKernelNodeSetParams");
  if (error) return error;
  return is(node, NODE) ? take(node, given) : INVALID_HANDLE;
}

static Node *copy_of(const Node *node) {
  Node *copy = malloc(sizeof *copy);
  *copy = *node;
  for (int i = 0; i < node->function->parameters; i++) {
    copy->values[i] = malloc(node->function->sizes[i]);
    memcpy(copy->values[i], node->values[i], node->function->sizes[i]);
  }
  copy->next = NULL;
  return copy;
}

EXPORT Result cuGraphInstantiateWithFlags(Executable **instantiated, Graph *graph, uint64_t flags) {
  Result error = enter("cuGraphInstantiate");
  if (error) return error;
  if (!is_here(graph, GRAPH)) return INVALID_HANDLE;
  Executable *executable = calloc(1, sizeof *executable);
  made(&executable->handle, EXECUTABLE);
  Node **at = &executable->first;
  for (Node *node = graph->first; node; node = node->next) {
    *at = copy_of(node);
    at = &(*at)->next;
    node->function->module->executables++;
  }
  held(1);
  *instantiated = executable;
  return SUCCESS;
}

EXPORT Result cuGraphUpload(Executable *executable, void *stream) {
  Result error = enter("cuGraphUpload");
  if (error) return error;
  return is_here(executable, EXECUTABLE) && is_here(stream, STREAM) ? SUCCESS : INVALID_HANDLE;
}

EXPORT Result cuGraphLaunch(Executable *executable, void *stream) {
  Result error = enter("cuGraphLaunch");
  if (error) return error;
  if (!is_here(executable, EXECUTABLE) || !is_here(stream, STREAM)) return INVALID_HANDLE;
  return run(executable);
}

static void free_nodes(Node *node, int instantiated) {
  while (node) {
    Node *next = node->next;
    if (instantiated) node->function->module->executables--;
    forget_values(node);
    node->handle.kind = 0;
    free(node);
    node = next;
  }
}

EXPORT Result cuGraphExecDestroy(Executable *executable) {
  Result error = enter("cuGraphExecDestroy");
  if (error) return error;
  if (!is_here(executable, EXECUTABLE)) return INVALID_HANDLE;
  if (pending(executable->handle.device)) violation("a graph is destroyed while launches are queued");
  executable->handle.kind = 0;
  held(-1);
  free_nodes(executable->first, 1);
  return SUCCESS;
}

EXPORT Result cuGraphDestroy(Graph *graph) {
  Result error = enter("cuGraphDestroy");
  if (error) return error;
  if (!is_here(graph, GRAPH)) return INVALID_HANDLE;
  graph->handle.kind = 0;
  held(-1);
  free_nodes(graph->first, 0);
  return SUCCESS;
}
