/* Errors: injected ones, sticky ones, and violations of what a caller must keep to. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char violations[4096];
static Result sticky[MAX_DEVICES];

/* How often each call was made since somebody last forgot them; names are literals. */
enum { MAX_CALLS = 64 };
static struct {
  const char *name;
  long count;
} calls[MAX_CALLS];

/* One injection: the `countdown`th call of this name gives the error. */
static struct {
  char call[64];
  Result error;
  long countdown;
} injected;

/* STANDIN_FAIL=CALL:ERROR:N, where N counts calls from 1; CALL@DEVICE counts those for one device.
 * `standin_fail` sets another. */
EXPORT void standin_fail(const char *call, Result error, long countdown) {
  pthread_mutex_lock(&lock);
  snprintf(injected.call, sizeof injected.call, "%s", call);
  injected.error = error;
  injected.countdown = countdown;
  pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void read_environment(void) {
  const char *asked = getenv("STANDIN_FAIL");
  char call[64];
  int error;
  long countdown;
  if (asked && sscanf(asked, "%63[^:]:%d:%ld", call, &error, &countdown) == 3)
    standin_fail(call, error, countdown);
}

/* The error of this call, if it is the one that was asked for. */
static Result injected_error(const char *call, int device) {
  char there[80];
  snprintf(there, sizeof there, "%s@%d", call, device);
  if (injected.countdown < 1 || (strcmp(call, injected.call) && strcmp(there, injected.call)))
    return SUCCESS;
  return --injected.countdown ? SUCCESS : injected.error;
}

static void count(const char *call) {
  for (int i = 0; i < MAX_CALLS; i++) {
    if (calls[i].name && strcmp(calls[i].name, call)) continue;
    calls[i].name = call;
    calls[i].count++;
    return;
  }
}

/* Calls as "NAME COUNT" lines. */
EXPORT void standin_calls(char *into, size_t room) {
  size_t length = 0;
  pthread_mutex_lock(&lock);
  into[0] = 0;
  for (int i = 0; i < MAX_CALLS && calls[i].name && length < room; i++)
    length += snprintf(into + length, room - length, "%s %ld\n", calls[i].name, calls[i].count);
  pthread_mutex_unlock(&lock);
}

EXPORT void standin_forget_calls(void) {
  pthread_mutex_lock(&lock);
  memset(calls, 0, sizeof calls);
  pthread_mutex_unlock(&lock);
}

Result enter_on(const char *call, int device) {
  pthread_mutex_lock(&lock);
  count(call);
  Result error = device < 0 ? SUCCESS : sticky[device];
  if (!error) error = injected_error(call, device);
  pthread_mutex_unlock(&lock);
  return error;
}

Result enter(const char *call) { return enter_on(call, current_device()); }

void fail_execution(Result error, int device) {
  pthread_mutex_lock(&lock);
  sticky[device] = error;
  pthread_mutex_unlock(&lock);
}

int is(const void *handle, int kind) { return handle && ((const Handle *)handle)->kind == kind; }

int is_here(const void *handle, int kind) {
  if (!is(handle, kind)) return 0;
  int device = ((const Handle *)handle)->device, current = current_device();
  if (device == current) return 1;
  violation("something of GPU %d is used while GPU %d is current", device, current);
  return 0;
}

void violation(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&lock);
  size_t length = strlen(violations);
  vsnprintf(violations + length, sizeof violations - length, format, arguments);
  length = strlen(violations);
  if (length + 1 < sizeof violations) memcpy(violations + length, "\n", 2);
  pthread_mutex_unlock(&lock);
  va_end(arguments);
}

/* What was done that the driver forbids or leaves undefined, a line each. */
EXPORT const char *standin_violations(void) { return violations; }

static long things;

void held(int change) {
  pthread_mutex_lock(&lock);
  things += change;
  pthread_mutex_unlock(&lock);
}

/* Contexts, streams, events, modules, graphs, executables and allocations in use. */
EXPORT long standin_held(void) { return things; }

/* The compute capability that the stand-in has: STANDIN_CAPABILITY, 90 where it isn't set. */
int capability(void) {
  const char *asked = getenv("STANDIN_CAPABILITY");
  return asked ? atoi(asked) : 90;
}
