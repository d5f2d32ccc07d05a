#!/bin/sh
# An emulator: lets a host's own file systems show eight NVIDIA devices and four switches, and the
# module that a boot would have loaded. It hides what is mounted over; `off` shows that again.
#   gpu_host.sh boot    what the next boot would show: loads the module that is installed
#   gpu_host.sh loaded VERSION [open|proprietary]
#   gpu_host.sh off
set -eu
root=/srv/emulated-gpu

device() { # address class
  mkdir -p "$root/pci/$1"
  echo 0x10de > "$root/pci/$1/vendor"
  echo "$2" > "$root/pci/$1/class"
}

loaded() { # version flavour
  rm -rf "$root/module/nvidia" "$root/driver/nvidia"
  [ -n "$1" ] || return 0
  mkdir -p "$root/module/nvidia" "$root/driver/nvidia"
  echo "$1" > "$root/module/nvidia/version"
  kind="UNIX x86_64 Kernel Module"
  [ "$2" = proprietary ] || kind="UNIX Open Kernel Module for x86_64"
  echo "NVRM version: NVIDIA $kind  $1  Release Build" > "$root/driver/nvidia/version"
}

show() { # directory target
  mkdir -p "$root/$1"
  mountpoint --quiet "$2" || mount --bind "$root/$1" "$2"
}

case "$1" in
  off)
    for place in /sys/bus/pci/devices /sys/module /proc/driver; do
      while mountpoint --quiet "$place"; do umount "$place"; done
    done
    rm -rf "$root"
    exit 0
    ;;
  boot) loaded "$(cat "/lib/modules/$(uname -r)/updates/dkms/nvidia.ko" 2>/dev/null || true)" open ;;
  loaded) loaded "$2" "${3:-open}" ;;
  *) echo "unknown: $1" >&2; exit 2 ;;
esac
for number in 0 1 2 3 4 5 6 7; do device "0000:1$number:00.0" 0x030200; done
for number in 0 1 2 3; do device "0000:a$number:00.0" 0x068000; done
show pci /sys/bus/pci/devices
show module /sys/module
show driver /proc/driver
