//! A TUN device: packets that the kernel routes to it are read here, and what is written here came in by it.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl};
use tokio::io::unix::AsyncFd;

const SET_INTERFACE: Opcode = 0x4004_54ca;
const SET_PERSISTENT: Opcode = 0x4004_54cb;
/// Packets of IP, without anything in front of them.
const TUN_WITHOUT_HEADER: u16 = 0x0001 | 0x1000;
const NAME_LENGTH: usize = 16;

/// `struct ifreq`, as far as the kernel reads it here; its union is 24 bytes long.
#[repr(C)]
struct Request {
    name: [u8; NAME_LENGTH],
    flags: u16,
    rest: [u8; 22],
}

fn file() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/net/tun", flags, Mode::empty())?)
}

/// Whether devices can be made here.
pub fn is_there() -> io::Result<()> {
    file().map(drop)
}

/// Makes the device, or takes over the one of this name that another process left. It stays when this process ends: without
/// it the routes would go, and packets would leave unencrypted by another one.
#[expect(unsafe_code, reason = "rustix has no safe interface to TUN")]
pub fn open(name: &str) -> io::Result<AsyncFd<OwnedFd>> {
    let mut request = Request { name: [0; NAME_LENGTH], flags: TUN_WITHOUT_HEADER, rest: [0; 22] };
    if name.is_empty() || name.len() >= NAME_LENGTH {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a device has 1 to 15 characters"));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    let device = file()?;
    // SAFETY: TUNSETIFF reads a `struct ifreq`, of which `Request` has the size and the layout, and writes the name only
    // into a copy of its own.
    unsafe { ioctl(device.as_fd(), Setter::<SET_INTERFACE, Request>::new(request))? };
    // SAFETY: TUNSETPERSIST takes an integer and looks only whether it is zero.
    unsafe { ioctl(device.as_fd(), IntegerSetter::<SET_PERSISTENT>::new_usize(1))? };
    // SAFETY: the descriptor is owned by what registers it, and is neither closed nor replaced while that lives.
    let registered = unsafe { AsyncFd::register(device) };
    Ok(registered?)
}

const _: () = assert!(size_of::<Request>() == 40 && size_of::<*const c_void>() == 8);
