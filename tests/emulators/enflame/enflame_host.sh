#!/bin/sh
# An emulator: lets a host's own file systems show Enflame devices, eight unless told otherwise, and
# no module of theirs. It hides what is mounted over; `off` shows that again.
#   enflame_host.sh on [COUNT]  devices on the bus, an empty /sys/module, a kernel with headers
#   enflame_host.sh off
# Beside it lie the other stand-ins: efsmi, efsmt, kmod, driver.run.
set -eu
here=/srv/emulated-enflame
sbin=/usr/local/sbin

show() { # directory target
  mkdir -p "$here/$1" "$2"
  mountpoint --quiet "$2" || mount --bind "$here/$1" "$2"
}

case "$1" in
  off)
    for place in /sys/bus/pci/devices /sys/module /lib/modules; do
      while mountpoint --quiet "$place"; do umount "$place"; done
    done
    for tool in modprobe rmmod modinfo efsmi efsmt; do rm -f "$sbin/$tool"; done
    rm -rf "$here/pci" "$here/module" "$here/modules"
    ;;
  on)
    devices=
    for number in $(seq 0 $((${2:-8} - 1))); do
      devices="$devices${devices:+, }{}"
      card="$here/pci/0000:1$number:00.0"
      mkdir -p "$card"
      echo 0x1e36 > "$card/vendor"
      echo 0x120000 > "$card/class"
    done
    mkdir -p "$here/modules/$(uname -r)/build"
    echo "{\"devices\": [$devices]}" > "$here/state.json"
    for tool in modprobe rmmod modinfo; do ln -sf "$here/kmod" "$sbin/$tool"; done
    ln -sf "$here/efsmt" "$sbin/efsmt"
    show pci /sys/bus/pci/devices
    show module /sys/module
    show modules /lib/modules
    ;;
  *) echo "unknown: $1" >&2; exit 2 ;;
esac
