// Stands between torch and its own CPU allocator: counts the bytes of every CPU tensor, and gives the allocations of a
// step that is known their planned addresses (arena.h). Sees all threads and all workspaces that torch takes from its
// allocator.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <pthread.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "arena.h"

namespace {

using lowtide::Arena;
using lowtide::Layout;
using lowtide::Recording;

std::atomic<int64_t> current{0};
std::atomic<int64_t> peak{0};
c10::Allocator* inner = nullptr;

// A block that is in use.
struct Block {
  size_t bytes;
  Arena* arena = nullptr;  // where it lies; else it is torch's own, or a mapping
  Recording* recording = nullptr;  // who wants to know when it is given back
  int64_t number = 0;  // in the recording
  bool mapped = false;
};

// Spread over shards so that threads that allocate at once seldom wait for each other.
struct Shard {
  std::mutex lock;
  std::unordered_map<void*, Block> blocks;
};
constexpr size_t kShards = 16;

// Never destroyed: tensors may die after static destructors ran.
struct Everything {
  Shard shards[kShards];
  std::mutex lock;
  std::vector<Arena*> arenas;
  std::vector<Recording*> recordings;
};
Everything* all = nullptr;

// What the step of this thread is doing.
struct Counts {
  int64_t placed, placed_bytes, kept, kept_bytes, unforeseen, unforeseen_bytes, taken, taken_bytes;
};
struct Step {
  Arena* arena = nullptr;
  Layout* layout = nullptr;
  Recording* recording = nullptr;
  Counts counts{};
};
thread_local Step step;

Shard& shard_of(void* data) {
  return all->shards[(reinterpret_cast<uintptr_t>(data) >> 6) % kShards];
}

void add(int64_t bytes) {
  int64_t now = current.fetch_add(bytes) + bytes;
  int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

void release(void* data) {
  if (data == nullptr) return;
  Block block{0};
  {
    Shard& shard = shard_of(data);
    std::lock_guard<std::mutex> guard(shard.lock);
    auto found = shard.blocks.find(data);
    if (found != shard.blocks.end()) {
      block = found->second;
      shard.blocks.erase(found);
    }
  }
  current.fetch_sub(static_cast<int64_t>(block.bytes));
  if (block.recording != nullptr) block.recording->gave_back(block.number);
  if (block.arena == nullptr && !block.mapped) {
    inner->raw_deleter()(data);
    return;
  }
  c10::profiledCPUMemoryReporter().Delete(data);
  if (block.mapped) {
    munmap(data, lowtide::in_pages(block.bytes));
  } else {
    block.arena->give_back(data);
  }
}

// The planned address for `bytes`, where this thread's step foresees them and the place is free; else null.
void* planned(size_t bytes) {
  Counts& counts = step.counts;
  const auto size = static_cast<int64_t>(bytes);
  const int64_t number = step.layout->find(bytes);
  if (number == lowtide::kNone) {
    ++counts.unforeseen, counts.unforeseen_bytes += size;
    return nullptr;
  }
  const int64_t offset = step.layout->offsets[static_cast<size_t>(number)];
  if (offset == lowtide::kNone) {
    ++counts.kept, counts.kept_bytes += size;
    return nullptr;
  }
  void* data = step.arena->take(static_cast<size_t>(offset), bytes);
  if (data == nullptr) {
    ++counts.taken, counts.taken_bytes += size;
  } else {
    ++counts.placed, counts.placed_bytes += size;
  }
  return data;
}

class Counting final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::Device device(c10::DeviceType::CPU);
    Block block{bytes};
    void* data = nullptr;
    if (step.layout != nullptr && bytes > 0) {
      data = planned(bytes);
      if (data != nullptr) block.arena = step.arena;
    } else if (step.recording != nullptr && bytes >= lowtide::kMapped) {
      data = lowtide::map_pages(lowtide::in_pages(bytes));
      block.mapped = data != nullptr;
    }
    if (data != nullptr) {
      c10::profiledCPUMemoryReporter().New(data, bytes);
    } else {
      c10::DataPtr taken = inner->allocate(bytes);
      device = taken.device();
      data = taken.release_context();
    }
    if (data != nullptr) {
      if (step.recording != nullptr) {
        block.recording = step.recording;
        block.number = step.recording->took(bytes);
      }
      {
        Shard& shard = shard_of(data);
        std::lock_guard<std::mutex> guard(shard.lock);
        shard.blocks[data] = block;
      }
      add(static_cast<int64_t>(bytes));
    }
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override { inner->copy_data(to, from, count); }
};

// No lock may be held by another thread when a process forks: in the child nobody would let go of it.
void before_fork() {
  all->lock.lock();
  for (Recording* recording : all->recordings) recording->lock().lock();
  for (Arena* arena : all->arenas) arena->lock().lock();
  for (Shard& shard : all->shards) shard.lock.lock();
}
void after_fork() {
  for (Shard& shard : all->shards) shard.lock.unlock();
  for (Arena* arena : all->arenas) arena->lock().unlock();
  for (Recording* recording : all->recordings) recording->lock().unlock();
  all->lock.unlock();
}

}  // namespace

extern "C" {
void lowtide_install() {
  if (inner != nullptr) return;
  inner = c10::GetCPUAllocator();
  all = new Everything;
  static Counting counting;
  c10::SetCPUAllocator(&counting, /*priority=*/255);
  pthread_atfork(&before_fork, &after_fork, &after_fork);
}
int64_t lowtide_current() { return current.load(); }
int64_t lowtide_peak() { return peak.load(); }
void lowtide_reset_peak() { peak.store(current.load()); }

// Of the thread that calls: what it allocates until the end is recorded. 0 where it is in a step already.
int lowtide_record_begin() {
  if (step.recording != nullptr || step.layout != nullptr) return 0;
  auto* recording = new Recording;
  std::lock_guard<std::mutex> guard(all->lock);
  all->recordings.push_back(recording);
  step = Step{nullptr, nullptr, recording};
  return 1;
}
// How many allocations there were; the recording is to be read next.
int64_t lowtide_record_end(void** recording) {
  *recording = step.recording;
  step = Step{};
  return static_cast<Recording*>(*recording)->close();
}
void lowtide_record_read(void* recording, int64_t* bytes, int64_t* begin, int64_t* end) {
  static_cast<Recording*>(recording)->read(bytes, begin, end);
}

void* lowtide_arena_open(int64_t bytes) {
  Arena* arena = Arena::open(static_cast<size_t>(bytes));
  std::lock_guard<std::mutex> guard(all->lock);
  if (arena != nullptr) all->arenas.push_back(arena);
  return arena;
}
void lowtide_arena_close(void* arena) { static_cast<Arena*>(arena)->close(); }
int64_t lowtide_arena_live(void* arena) { return static_cast<Arena*>(arena)->live(); }
void lowtide_arena_touch(void* arena) { static_cast<Arena*>(arena)->touch(); }
void lowtide_arena_release(void* arena) { static_cast<Arena*>(arena)->release_pages(); }
void lowtide_release_arenas() {
  std::lock_guard<std::mutex> guard(all->lock);
  for (Arena* arena : all->arenas) arena->release_pages();
}

void* lowtide_layout(int64_t count, const int64_t* bytes, const int64_t* offsets) {
  return new Layout{{bytes, bytes + count}, {offsets, offsets + count}};
}
void lowtide_layout_free(void* layout) { delete static_cast<Layout*>(layout); }

// Of the thread that calls: its allocations until the end get their planned addresses. 0 where the arena is in use, or
// this thread is in a step already.
int lowtide_step_begin(void* arena, void* layout) {
  if (step.recording != nullptr || step.layout != nullptr) return 0;
  if (!static_cast<Arena*>(arena)->begin_step()) return 0;
  step = Step{static_cast<Arena*>(arena), static_cast<Layout*>(layout)};
  step.layout->start();
  return 1;
}
void lowtide_step_end(int64_t* counts) {
  *reinterpret_cast<Counts*>(counts) = step.counts;
  Arena* arena = step.arena;
  step = Step{};
  arena->end_step();
}
}
