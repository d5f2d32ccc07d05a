"""What benchmarks/weights_others.py needs of libtorrent, run by a Python that holds it.

torrent_host.py make TREE NAME WEB_SEED TRACKER OUT   describe the files of a directory
torrent_host.py take TORRENT DIRECTORY ADDRESS        take them, say so, and give until killed
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import libtorrent

PIECE = 2**18
PORT = 6881


def make(tree: str, name: str, web_seed: str, tracker: str, out: str) -> None:
    """Write the description of a directory's files, which the web seed has below NAME."""
    files = libtorrent.file_storage()
    for path in sorted(Path(tree).iterdir()):
        files.add_file(f"{name}/{path.name}", path.stat().st_size)
    torrent = libtorrent.create_torrent(files, PIECE, libtorrent.create_torrent.v1_only)
    torrent.add_url_seed(web_seed)
    torrent.add_tracker(tracker)
    # Pieces are read from a directory that is called as the torrent is.
    place = Path(out).with_suffix(".tree")
    place.mkdir()
    (place / name).symlink_to(tree)
    libtorrent.set_piece_hashes(torrent, str(place))
    Path(out).write_bytes(libtorrent.bencode(torrent.generate()))


def take(torrent: str, directory: str, address: str) -> None:
    """Take the files from the web seed and from each other, then give until killed."""
    session = libtorrent.session(
        {
            "listen_interfaces": f"{address}:{PORT}",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "unchoke_slots_limit": -1,
            "min_announce_interval": 1,
            # A hub that ends a connection is asked again at once, not after half a minute.
            "urlseed_wait_retry": 1,
            "min_reconnect_time": 1,
            # The last pieces are asked for twice, and again soon.
            "strict_end_game_mode": False,
            "piece_timeout": 3,
            "request_timeout": 5,
        }
    )
    handle = session.add_torrent({"ti": libtorrent.torrent_info(torrent), "save_path": directory})
    while not handle.status().is_seeding:
        time.sleep(0.05)
    print("whole", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    {"make": make, "take": take}[sys.argv[1]](*sys.argv[2:])
