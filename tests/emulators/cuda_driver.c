/* libcuda.so.1 as the accelerator probe calls it, in host memory: for error paths, not for PTX.

   EMULATED_FAIL=function:nth makes that call fail with EMULATED_CODE; EMULATED_STUCK=bit makes
   that bit of one word stay 1; EMULATED_LOG=file takes a line for each thing made and freed.
   All that is timed takes 50 ms. What a whole host shows is said when it is built: DEVICES, NAME,
   MEMORY (bytes) and BUS (of the first device). */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t address;
enum { OUT_OF_MEMORY = 2, ECC_UNCORRECTABLE = 214 };
static int calls, sticky;

#ifndef DEVICES
#define DEVICES 1
#define BUS 0xa0
#define MEMORY (1UL << 30)
#endif

static int number(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

static void tell(char sign, const char *what) {
  const char *path = getenv("EMULATED_LOG");
  char line[64];
  int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
  if (file < 0) return;
  int length = snprintf(line, sizeof line, "%c%s\n", sign, what);
  if (write(file, line, length) != length) abort();
  close(file);
}

static int fails(const char *function) {
  const char *wanted = getenv("EMULATED_FAIL");
  size_t length = strlen(function);
  if (sticky) return sticky;
  if (!wanted || strncmp(wanted, function, length) || wanted[length] != ':') return 0;
  if (++calls != atoi(wanted + length + 1)) return 0;
  int code = number("EMULATED_CODE", OUT_OF_MEMORY);
  if (code == ECC_UNCORRECTABLE) sticky = code;
  return code;
}
#define MAY_FAIL int code = fails(__func__); if (code) return code

int cuGetErrorName(int code, const char **name) {
  *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
        : code == ECC_UNCORRECTABLE ? "CUDA_ERROR_ECC_UNCORRECTABLE" : NULL;
  return *name ? 0 : 1;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory"
        : code == ECC_UNCORRECTABLE ? "uncorrectable ECC error encountered" : NULL;
  return *text ? 0 : 1;
}
int cuInit(unsigned flags) { MAY_FAIL; return flags; }
int cuDriverGetVersion(int *version) { MAY_FAIL; *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { MAY_FAIL; *count = number("EMULATED_DEVICES", DEVICES); return 0; }
int cuDeviceGet(int *device, int index) { MAY_FAIL; *device = index; return 0; }
int cuDeviceGetName(char *name, int length, int device) {
  MAY_FAIL;
#ifdef NAME
  (void)device; snprintf(name, length, "%s", NAME); return 0;
#else
  snprintf(name, length, "Emulated %d", device); return 0;
#endif
}
int cuDeviceGetUuid(char *uuid, int device) { MAY_FAIL; memset(uuid, device + 1, 16); return 0; }
int cuDeviceGetPCIBusId(char *id, int length, int device) {
  MAY_FAIL; snprintf(id, length, "0000:%02X:00.0", BUS + device); return 0;
}
int cuDeviceGetAttribute(int *value, int which, int device) {
  MAY_FAIL; (void)device;
  *value = which == 16 ? 4 : which == 75 ? number("EMULATED_MAJOR", 9) : 0; return 0;
}
int cuDeviceTotalMem_v2(size_t *size, int device) {
  MAY_FAIL; (void)device; *size = MEMORY; return 0;
}
int cuDeviceCanAccessPeer(int *can, int a, int b) { MAY_FAIL; *can = a != b; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
  MAY_FAIL; *context = (void *)(uintptr_t)(device + 1); tell('+', "context"); return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; tell('-', "context"); return 0; }
int cuCtxSetCurrent(void *context) { MAY_FAIL; (void)context; return 0; }
int cuCtxSynchronize(void) { MAY_FAIL; return 0; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) {
  MAY_FAIL; (void)context; (void)flags; return 0;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) {
  MAY_FAIL; *free = (size_t)number("EMULATED_FREE_MIB", 512) << 20; *total = MEMORY; return 0;
}
int cuMemAlloc_v2(address *at, size_t size) {
  MAY_FAIL; *at = (address)(uintptr_t)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  tell('+', "memory"); return 0;
}
int cuMemFree_v2(address at) { free((void *)(uintptr_t)at); tell('-', "memory"); return 0; }
int cuMemAllocHost_v2(void **at, size_t size) {
  MAY_FAIL; *at = malloc(size); tell('+', "pinned"); return 0;
}
int cuMemFreeHost(void *at) { free(at); tell('-', "pinned"); return 0; }
int cuMemsetD8_v2(address at, unsigned char value, size_t count) {
  MAY_FAIL; memset((void *)(uintptr_t)at, value, count); return 0;
}
int cuMemsetD32_v2(address at, unsigned value, size_t count) {
  MAY_FAIL; for (size_t i = 0; i < count; i++) ((uint32_t *)(uintptr_t)at)[i] = value; return 0;
}
static int copy(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
#define AT(address) ((void *)(uintptr_t)(address))
int cuMemcpyHtoD_v2(address to, const void *from, size_t n) { MAY_FAIL; return copy(AT(to), from, n); }
int cuMemcpyDtoH_v2(void *to, address from, size_t n) { MAY_FAIL; return copy(to, AT(from), n); }
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t n, void *stream) {
  MAY_FAIL; (void)stream; return copy(AT(to), from, n);
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t n, void *stream) {
  MAY_FAIL; (void)stream; return copy(to, AT(from), n);
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t n, void *stream) {
  MAY_FAIL; (void)stream; return copy(AT(to), AT(from), n);
}
int cuMemcpyPeerAsync(address to, void *a, address from, void *b, size_t n, void *stream) {
  MAY_FAIL; (void)a; (void)b; (void)stream; return copy(AT(to), AT(from), n);
}
int cuModuleLoadData(void **module, const char *ptx) {
  MAY_FAIL; *module = (void *)ptx; tell('+', "module"); return 0;
}
int cuModuleUnload(void *module) { (void)module; tell('-', "module"); return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  MAY_FAIL; (void)module; *function = strdup(name); return 0;
}
static uint32_t pattern(uint64_t i, uint32_t seed, uint32_t flip) {
  uint32_t word = (uint32_t)i * 0x9E3779B1u + seed + (uint32_t)(i >> 32) * 0x85EBCA6Bu;
  return (word ^ word >> 15) ^ flip;
}
int cuLaunchKernel(const char *name, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **p, void **extra) {
  MAY_FAIL; (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
  (void)stream, (void)extra;
  uint32_t *data = AT(*(address *)p[0]);
  uint64_t count = *(uint64_t *)p[1];
  int stuck = number("EMULATED_STUCK", -1);
  if (!strcmp(name, "fill"))
    for (uint64_t i = 0; i < count; i++) data[i] = pattern(i, *(uint32_t *)p[2], *(uint32_t *)p[3]);
  if (!strcmp(name, "check")) {
    uint64_t *out = AT(*(address *)p[4]);
    if (stuck >= 0) data[4321] |= 1u << stuck;
    for (uint64_t i = 0; i < count; i++) {
      uint32_t bits = data[i] ^ pattern(i, *(uint32_t *)p[2], *(uint32_t *)p[3]);
      if (!bits) continue;
      out[0]++;
      out[1] = i < out[1] ? i : out[1];
      out[2] |= bits;
    }
  }
  if (!strcmp(name, "sum")) {
    uint32_t total = 0;
    for (uint64_t i = 0; i < 4 * count; i++) total += data[i];
    *(uint32_t *)AT(*(address *)p[2]) += total;
  }
  return 0;
}
int cuEventCreate(void **event, unsigned flags) {
  MAY_FAIL; (void)flags; *event = malloc(1); tell('+', "event"); return 0;
}
int cuEventRecord(void *event, void *stream) { MAY_FAIL; (void)event; (void)stream; return 0; }
int cuEventSynchronize(void *event) { MAY_FAIL; (void)event; return 0; }
int cuEventElapsedTime(float *elapsed, void *begin, void *end) {
  MAY_FAIL; (void)begin; (void)end; *elapsed = 50; return 0;
}
int cuEventDestroy_v2(void *event) { free(event); tell('-', "event"); return 0; }
