// Memory of steps that allocate the same things again and again: one block, and an address for each allocation.
//
// A Recording is what one step took and gave back, in order. A Layout is such a step with an offset for each
// allocation. An Arena is the memory; it knows what lives in it, so that no two allocations ever share a byte, whatever
// a step does: an address is handed out only while its bytes are free. Recordings and arenas are never deleted, as
// blocks point to them; what is left of one that is over are a few words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace lowtide {

constexpr size_t kHuge = size_t{1} << 21;  // bytes of a huge page
constexpr size_t kMapped = size_t{1} << 18;  // while recording, a block of at least so many bytes is a mapping
constexpr int64_t kNone = -1;
constexpr size_t kWindow = 64;  // allocations on either side of the expected one that are looked at

inline size_t in_pages(size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

inline void* map_pages(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);  // a wish: without huge pages it is only slower
  return data;
}

// What a step takes and gives back, in the order of events; `read` empties it.
class Recording {
 public:
  int64_t took(size_t bytes) {
    std::lock_guard<std::mutex> guard(lock_);
    bytes_.push_back(static_cast<int64_t>(bytes));
    begin_.push_back(clock_++);
    end_.push_back(kNone);
    return static_cast<int64_t>(bytes_.size()) - 1;
  }
  void gave_back(int64_t number) {
    std::lock_guard<std::mutex> guard(lock_);
    if (open_) end_[static_cast<size_t>(number)] = clock_++;
  }
  int64_t close() {
    std::lock_guard<std::mutex> guard(lock_);
    open_ = false;
    return static_cast<int64_t>(bytes_.size());
  }
  // Bytes, begin and end of every allocation; an end of -1 is behind the step. Nothing is left here afterwards.
  void read(int64_t* bytes, int64_t* begin, int64_t* end) {
    std::lock_guard<std::mutex> guard(lock_);
    for (size_t k = 0; bytes != nullptr && k < bytes_.size(); ++k) {
      bytes[k] = bytes_[k], begin[k] = begin_[k], end[k] = end_[k];
    }
    bytes_ = {}, begin_ = {}, end_ = {};
  }
  std::mutex& lock() { return lock_; }

 private:
  std::mutex lock_;
  bool open_ = true;
  int64_t clock_ = 0;
  std::vector<int64_t> bytes_, begin_, end_;
};

// The allocations of a step as they are expected, and which of them have come in the step that runs.
struct Layout {
  std::vector<int64_t> bytes, offsets;  // an offset of -1: it outlives the step, and is not for the arena
  std::vector<char> came;
  size_t next = 0;

  void start() {
    came.assign(bytes.size(), 0);
    next = 0;
  }
  // The expected allocation that one of `wanted` bytes is: the next, or the nearest of that size that has not come.
  int64_t find(size_t wanted) {
    for (size_t far = 0; far <= kWindow; ++far) {
      if (far > 0 && far <= next && is(next - far, wanted)) return take(next - far);
      if (is(next + far, wanted)) return take(next + far);
    }
    return kNone;
  }

 private:
  bool is(size_t k, size_t wanted) const {
    return k < bytes.size() && !came[k] && bytes[k] == static_cast<int64_t>(wanted);
  }
  int64_t take(size_t k) {
    came[k] = 1;
    next = k + 1;
    return static_cast<int64_t>(k);
  }
};

class Arena {
 public:
  // Maps and touches `bytes`, in huge pages where the system has them; null where there is not so much.
  static Arena* open(size_t bytes) {
    const size_t room = in_pages(bytes) + kHuge;
    void* mapped = map_pages(room);
    if (mapped == nullptr) return nullptr;
    // Only what is used stays mapped: the block begins at a huge page, and ends where it must.
    char* first = static_cast<char*>(mapped);
    char* base = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(first) + kHuge - 1) / kHuge * kHuge);
    char* end = base + in_pages(bytes);
    if (base > first) munmap(first, static_cast<size_t>(base - first));
    if (first + room > end) munmap(end, static_cast<size_t>(first + room - end));
    Arena* arena = new Arena(base, in_pages(bytes));
    arena->touch();
    return arena;
  }
  // Every page is there from now on, if the system has them.
  void touch() {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::lock_guard<std::mutex> guard(lock_);
    if (!live_.empty() || !come_back()) return;
    for (size_t at = 0; at < size_; at += page) base_[at] = 0;
  }
  // The address at `offset`, if these bytes are free and inside.
  void* take(size_t offset, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock_);
    if (offset + bytes > size_ || !come_back()) return nullptr;
    auto after = live_.lower_bound(offset);
    if (after != live_.end() && after->first < offset + bytes) return nullptr;
    if (after != live_.begin()) {
      auto before = std::prev(after);
      if (before->first + before->second > offset) return nullptr;
    }
    live_.emplace_hint(after, offset, bytes);
    return base_ + offset;
  }
  void give_back(void* data) {
    std::lock_guard<std::mutex> guard(lock_);
    live_.erase(static_cast<size_t>(static_cast<char*>(data) - base_));
    unmap_when_over();
  }
  // One step at a time: another one that begins meanwhile does without.
  bool begin_step() {
    std::lock_guard<std::mutex> guard(lock_);
    if (busy_ || closed_) return false;
    return busy_ = true;
  }
  void end_step() {
    std::lock_guard<std::mutex> guard(lock_);
    busy_ = false;
    unmap_when_over();
  }
  // The memory goes when the last block in it does.
  void close() {
    std::lock_guard<std::mutex> guard(lock_);
    closed_ = true;
    unmap_when_over();
  }
  // The pages go to the system until they are touched or used; nothing where something lives here. The addresses stay
  // ours, but count towards no limit on the process meanwhile.
  void release_pages() {
    std::lock_guard<std::mutex> guard(lock_);
    if (!live_.empty() || busy_ || base_ == nullptr || away_) return;
    madvise(base_, size_, MADV_DONTNEED);
    away_ = mprotect(base_, size_, PROT_NONE) == 0;
  }
  int64_t live() {
    std::lock_guard<std::mutex> guard(lock_);
    return static_cast<int64_t>(live_.size());
  }
  std::mutex& lock() { return lock_; }

 private:
  Arena(char* base, size_t size) : base_(base), size_(size) {}
  bool come_back() {
    if (away_ && mprotect(base_, size_, PROT_READ | PROT_WRITE) == 0) away_ = false;
    return !away_;
  }
  void unmap_when_over() {
    if (!closed_ || busy_ || !live_.empty() || base_ == nullptr) return;
    munmap(base_, size_);
    base_ = nullptr;
    size_ = 0;
  }

  std::mutex lock_;
  char* base_;
  size_t size_;
  std::map<size_t, size_t> live_;
  bool busy_ = false, closed_ = false, away_ = false;
};

}  // namespace lowtide
