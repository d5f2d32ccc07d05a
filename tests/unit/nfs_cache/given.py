"""The variables of a cache over NFS as tests give them."""

GIVEN = {
    "path": "/srv/shared",
    "export": "",
    "server": "head",
    "options": "",
    "directory": "/var/cache/fscache",
    "mode": "auto",
    "limits": {},
    "minimum_free_gib": 8,
    "required": False,
}
