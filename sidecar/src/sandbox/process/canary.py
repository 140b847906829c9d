# Tries what no session may do. Prints a JSON object: the name of each try -> null, or what happened instead of a refusal.
import json, os, socket

facts = json.loads(FACTS)
faults = {}


def refused(name, action):
    """The action must end in an error of the operating system."""
    try:
        seen = action()
    except OSError:
        faults.setdefault(name)
    else:
        faults[name] = "not refused: %.80r" % (seen,)


def reach(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect(address)


refused("host_file", lambda: open(facts["host_file"]).read())
refused("host_shadow", lambda: open("/etc/shadow").read())
for place in ("/", "/usr", "/etc", "/otari", "/dev", "/bin/"):
    refused("write_outside", lambda: os.open(os.path.join(place, "probe"), os.O_CREAT | os.O_WRONLY))
refused("network", lambda: reach(socket.AF_INET, ("127.0.0.1", facts["port"])))
refused("network_outside", lambda: reach(socket.AF_INET, ("192.0.2.1", 80)))
for family in (16, 17, 38, 40):  # netlink, packet, crypto, virtual machine
    refused("socket_family", lambda: socket.socket(family, socket.SOCK_DGRAM))
refused("core_pattern", lambda: open("/proc/sys/kernel/core_pattern", "r+"))
def nest():
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "refused")


try:
    refused("nested_namespace", nest)
except ImportError:
    pass
refused("setuid", lambda: os.setuid(0))
refused("chroot", lambda: os.chroot("/tmp"))

open_files = []
for number in range(4, 1024):
    try:
        os.fstat(number)
        open_files.append(number)
    except OSError:
        pass
faults["descriptors"] = "inherited: %s" % open_files if open_files else None
strange = sorted(set(os.environ) - set(facts["environment"]) - {"PATH", "PWD"})
faults["environment"] = "unknown variables: %s" % ", ".join(strange) if strange else None
try:
    with open("/proc/1/environ", "rb") as file:
        entries = file.read()
except OSError:
    entries = b""
faults["environment_of_1"] = "process 1 holds %d bytes" % len(entries) if entries else None
print(json.dumps(faults))
