// A stack of its own for each CUDA thread, and the switch between two stacks of one OS thread.
#pragma once

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace fagen::emu {

inline constexpr size_t kStackBytes = 256 * 1024;  // beyond what 255 registers and inlined helpers need

// Memory for one stack; below it a page that must not be touched, so that an overflow stops the program.
class Stack {
 public:
  Stack() {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(memory);
    mprotect(base_, page, PROT_NONE);
  }
  Stack(Stack&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  Stack& operator=(Stack&&) = delete;
  ~Stack() {
    if (base_) munmap(base_, kStackBytes);
  }

  char* low() const { return base_; }
  char* high() const { return base_ + kStackBytes; }

 private:
  char* base_;
};

#if defined(__x86_64__) || defined(__aarch64__)

// Saves the registers that a call preserves on the running stack, notes it in *from, and goes on at `to`.
extern "C" [[gnu::visibility("hidden")]] void fagen_emu_switch(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.hidden fagen_emu_switch
.globl fagen_emu_switch
.type fagen_emu_switch, @function
fagen_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fagen_emu_switch, .-fagen_emu_switch
)");
inline constexpr size_t kSavedWords = 6;  // below the return address
#else
asm(R"(
.text
.p2align 4
.hidden fagen_emu_switch
.globl fagen_emu_switch
.type fagen_emu_switch, %function
fagen_emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size fagen_emu_switch, .-fagen_emu_switch
)");
#endif

class Context {
 public:
  // Prepares `entry` to run on `stack` at the first switch to this context; it must not return.
  void prepare(const Stack& stack, void (*entry)()) {
    auto* top = reinterpret_cast<uintptr_t*>(stack.high());
#if defined(__x86_64__)
    *--top = 0;  // where a call would have left the stack: entry's frame is 16-byte aligned plus 8
    *--top = reinterpret_cast<uintptr_t>(entry);
    for (size_t i = 0; i < kSavedWords; ++i) *--top = 0;
#else
    for (size_t i = 0; i < 20; ++i) *--top = 0;
    top[11] = reinterpret_cast<uintptr_t>(entry);  // x30
#endif
    saved_ = top;
  }

  void switch_to(Context& to) { fagen_emu_switch(&saved_, to.saved_); }

 private:
  void* saved_ = nullptr;
};

#else

class Context {
 public:
  void prepare(const Stack& stack, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack.low();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

  void switch_to(Context& to) { swapcontext(&context_, &to.context_); }

 private:
  ucontext_t context_;
};

#endif

}  // namespace fagen::emu
