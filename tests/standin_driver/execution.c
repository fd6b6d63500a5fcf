/* Running graphs: `stage` and `record` do what they do on a GPU, all else is left to whoever asked
 * to play rounds (`standin_on_round`), or to nobody. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

enum { RANGE_NBYTES = 8192, TIMED = 256, MAX_QUEUED = 64 };

/* By device. */
static void (*on_round[MAX_DEVICES])(void);
static int paused[MAX_DEVICES];
static Executable *queue[MAX_DEVICES][MAX_QUEUED];
static int queued[MAX_DEVICES];
static long rounds;
static const Executable *latest;

EXPORT void standin_on_round(int device, void (*play)(void)) { on_round[device] = play; }
EXPORT long standin_rounds(void) { return rounds; }

enum { SECOND_NS = 1000000000 };
/* Another epoch than the host's, as a GPU's clock has. */
static const int64_t EPOCH_NS = 86400LL * SECOND_NS;

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * SECOND_NS + time.tv_nsec + EPOCH_NS;
}

/* How long a round takes, and by device when the last one ends, on this clock. */
static int64_t round_ns, last_end[MAX_DEVICES];
static int running[MAX_DEVICES];

EXPORT void standin_round_ns(long ns) { round_ns = ns; }

typedef struct {
  int64_t *word, sequence, end;
  int device;
} Release;

/* Rounds that have been played and whose time isn't over: one thread releases them in turn. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t more;
  Release rounds[MAX_QUEUED];
  unsigned first, count;
} due = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{0}}, 0, 0};

static void *release_in_time(void *nothing) {
  for (;;) {
    pthread_mutex_lock(&due.lock);
    while (!due.count) pthread_cond_wait(&due.more, &due.lock);
    Release one = due.rounds[due.first];
    pthread_mutex_unlock(&due.lock);
    int64_t host = one.end - EPOCH_NS;
    struct timespec until = {host / SECOND_NS, host % SECOND_NS};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    pthread_mutex_lock(&due.lock);
    due.first = (due.first + 1) % MAX_QUEUED;
    due.count--;
    pthread_mutex_unlock(&due.lock);
    __atomic_store_n(one.word, one.sequence, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&running[one.device], 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

static void release_later(Release one) {
  static int started;
  pthread_t thread;
  __atomic_fetch_add(&running[one.device], 1, __ATOMIC_RELEASE);
  pthread_mutex_lock(&due.lock);
  if (!started) started = !pthread_create(&thread, NULL, release_in_time, NULL);
  due.rounds[(due.first + due.count++) % MAX_QUEUED] = one;
  pthread_cond_signal(&due.more);
  pthread_mutex_unlock(&due.lock);
}

/* Stamps a round and releases its sequence, at once or when its time is over. */
static void finish(int64_t *times, int64_t *completed, const int64_t *state, int device) {
  int64_t begin = state[1] > last_end[device] ? state[1] : last_end[device], end = now();
  if (round_ns) end = last_end[device] = begin + round_ns;
  times[state[0] % TIMED * 2] = round_ns ? begin : state[1];
  times[state[0] % TIMED * 2 + 1] = end;
  if (!round_ns) {
    __atomic_store_n(completed, state[0], __ATOMIC_RELEASE);
    return;
  }
  release_later((Release){completed, state[0], end, device});
}

static int64_t *words(const Node *node, int parameter, size_t nbytes) {
  Address address;
  memcpy(&address, node->values[parameter], sizeof address);
  int64_t *found = host_of(address, nbytes, node->handle.device);
  if (!found) violation("%s: parameter %d is no memory", node->function->name, parameter);
  return found;
}

static Result copy(const Node *node) {
  int64_t *table = words(node, 0, node->grid[0] * 3 * sizeof(int64_t));
  if (!table) return 700;
  for (unsigned row = 0; row < node->grid[0]; row++, table += 3) {
    int device = node->handle.device;
    void *from = host_of(table[0], table[2], device), *to = host_of(table[1], table[2], device);
    if (table[2] < 0 || table[2] > RANGE_NBYTES || (table[0] | table[1] | table[2]) % 16)
      violation("%s: row %u of the table is against its rules", node->function->name, row);
    if (!table[2]) continue;
    if (!from || !to) return 700;
    memcpy(to, from, table[2]);
  }
  return SUCCESS;
}

static Result stage(const Node *node) {
  int64_t *sequence = words(node, 1, 8), *state = words(node, 2, 16);
  if (!sequence || !state) return 700;
  state[0] = *sequence;
  state[1] = now();
  return copy(node);
}

static Result record(const Node *node) {
  int64_t *state = words(node, 1, 16), *arrivals = words(node, 2, 4);
  int64_t *times = words(node, 3, TIMED * 16), *completed = words(node, 4, 8);
  if (!state || !arrivals || !times || !completed) return 700;
  if (*(int32_t *)arrivals) violation("record: arrivals aren't zero");
  Result error = copy(node);
  if (error) return error;
  finish(times, completed, state, node->handle.device);
  return SUCCESS;
}

static Result execute(Executable *executable) {
  int device = executable->handle.device;
  Result error = enter_on("run", device);
  rounds++;
  latest = executable;
  for (const Node *node = executable->first; node && !error; node = node->next) {
    if (!strcmp(node->function->name, "stage")) {
      error = stage(node);
    } else if (!strcmp(node->function->name, "record")) {
      if (on_round[device]) on_round[device]();
      error = record(node);
    }
  }
  if (error) fail_execution(error, device);
  return SUCCESS; /* a launch's failure is seen by the calls after it */
}

/* While they are blocked, launches don't return to their caller: until another thread lets them, or
 * after ten seconds, which is a violation. */
static pthread_mutex_t blocking = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static int blocked, waiting;

EXPORT void standin_block(int whether) {
  pthread_mutex_lock(&blocking);
  blocked = whether;
  pthread_cond_broadcast(&let_go);
  pthread_mutex_unlock(&blocking);
}

EXPORT int standin_waiting(void) { return __atomic_load_n(&waiting, __ATOMIC_ACQUIRE); }

static void wait_while_blocked(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 10;
  pthread_mutex_lock(&blocking);
  __atomic_fetch_add(&waiting, 1, __ATOMIC_RELEASE);
  int late = 0;
  while (blocked && !late) late = pthread_cond_timedwait(&let_go, &blocking, &until);
  __atomic_fetch_sub(&waiting, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&blocking);
  if (late) violation("no other thread let a launch go on");
}

Result run(Executable *executable) {
  wait_while_blocked();
  int device = executable->handle.device;
  /* The injection "hang" leaves everything from here on in the queue. */
  if (enter_on("hang", device)) paused[device] = 1;
  if (!paused[device]) return execute(executable);
  if (queued[device] == MAX_QUEUED) return OUT_OF_MEMORY;
  queue[device][queued[device]++] = executable;
  return SUCCESS;
}

/* A node of the graph that ran last: what a caller gave for it. NULL past the last node. */
static const Node *node_of_latest(int number) {
  const Node *node = latest ? latest->first : NULL;
  while (node && number--) node = node->next;
  return node;
}

/* 1 where the node may begin before the one it depends on has ended, 0 where not, −1 past the
 * last node. */
EXPORT int standin_programmatic(int number) {
  const Node *node = node_of_latest(number);
  return node ? node->programmatic : -1;
}

/* The size of a node's parameter, whose bytes go to `into`; 0 past the last one. */
EXPORT size_t standin_parameter(int number, int parameter, void *into) {
  const Node *node = node_of_latest(number);
  if (!node || parameter >= node->function->parameters) return 0;
  memcpy(into, node->values[parameter], node->function->sizes[parameter]);
  return node->function->sizes[parameter];
}

Result pending(int device) {
  return queued[device] || __atomic_load_n(&running[device], __ATOMIC_ACQUIRE) ? NOT_READY : SUCCESS;
}

/* While a device is paused, launches wait; they run, in order, when it isn't any more. */
EXPORT void standin_pause(int device, int whether) {
  paused[device] = whether;
  if (whether) return;
  for (int i = 0; i < queued[device]; i++) execute(queue[device][i]);
  queued[device] = 0;
}
