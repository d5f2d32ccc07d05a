/* What the exporter asks of NVIDIA's management library, of devices that a file describes.
 *
 * VLLM_TEST_NVML names the file, read anew at each start: how many devices, from which one on they
 * are lost, why the first one is slowed down (nvmlClocksEventReasons), its uncorrected memory
 * errors, and whether the library hangs. Layouts are those of NVIDIA's Python bindings.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNKNOWN = 999, NOT_FOUND = 6, LOST = 15 };

typedef struct {
  char legacy[16];
  unsigned numbers[5];
  char address[32];
} pci_info;

static unsigned devices, lost_from, reasons, uncorrected, hangs;

int nvmlInit_v2(void) {
  FILE *file = fopen(getenv("VLLM_TEST_NVML"), "r");
  if (!file) return UNKNOWN;
  int read = fscanf(file, "%u %u %u %u %u", &devices, &lost_from, &reasons, &uncorrected, &hangs);
  fclose(file);
  while (hangs) pause();
  return read == 5 ? OK : UNKNOWN;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = devices;
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, uintptr_t *device) {
  *device = index + 1;
  return index < lost_from ? OK : LOST;
}

int nvmlDeviceGetPciInfo_v3(uintptr_t device, pci_info *info) {
  memset(info, 0, sizeof *info);
  snprintf(info->address, sizeof info->address, "00000000:%02X:00.0", (unsigned)device);
  return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, uintptr_t *device) {
  unsigned bus;
  if (sscanf(address, "00000000:%02X:00.0", &bus) != 1) return NOT_FOUND;
  *device = bus;
  return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(uintptr_t device, unsigned long long *found) {
  *found = device == 1 ? reasons : 0;
  return OK;
}

/* error: 0 corrected, 1 uncorrected; counter: 0 since boot, 1 ever. */
int nvmlDeviceGetTotalEccErrors(uintptr_t device, int error, int counter,
                                unsigned long long *found) {
  (void)counter;
  *found = device == 1 && error == 1 ? uncorrected : 0;
  return OK;
}
