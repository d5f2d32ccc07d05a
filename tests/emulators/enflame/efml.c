/* libefml.so as the look at memory errors calls it; types and names are those of efml.h in
   Enflame's go-eflib. EMULATED_ECC="single,double;..." tells each device, "hang" one that does not
   come back; without it the driver does not answer. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, DRIVER_NOT_LOADED = 6 };
typedef struct {
  bool enabled, pending, pdblack;
  uint32_t ecnt_sb, ecnt_db;
} efmlEccStatus_t;

int EfmlInit(bool no_driver) {
  return getenv("EMULATED_ECC") && !no_driver ? SUCCESS : DRIVER_NOT_LOADED;
}
void EfmlShutdown(void) {}
int EfmlGetDevEccStatus(uint32_t index, efmlEccStatus_t *status) {
  const char *told = getenv("EMULATED_ECC");
  for (uint32_t one = 0; told && one < index; one++) {
    told = strchr(told, ';');
    if (told) told++;
  }
  while (told && strncmp(told, "hang", 4) == 0) pause();
  if (!told || sscanf(told, "%u,%u", &status->ecnt_sb, &status->ecnt_db) != 2) return INVALID_ARGUMENT;
  status->enabled = true;
  status->pending = status->pdblack = false;
  return SUCCESS;
}
