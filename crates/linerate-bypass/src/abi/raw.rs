//! syscall(2): programs that make system calls through the C library's function.

use libc::{c_int, c_long, c_uint};

use super::{descriptors, messages, names, readiness, streams};
use crate::kernel::real;
use crate::table::{self, DescriptorKind};

/// syscall(2). Its arguments are in registers, and the last one on the stack, whatever their types;
/// those that the caller did not give are not used.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let fd = a as c_int;
    // SAFETY: as the caller's: the arguments are those of the function of this name.
    unsafe {
        let done = match number {
            libc::SYS_io_uring_setup if crate::claim::is_configured() => names::refuse_io_uring(),
            libc::SYS_epoll_ctl => readiness::epoll_ctl(fd, b as c_int, c as c_int, d as *mut _) as isize,
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int) as isize,
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int) as isize,
            libc::SYS_ppoll | libc::SYS_pselect6 => return real::syscall(number, a, b, c, d, e, f),
            _ if table::kind(fd) == DescriptorKind::Kernel => return real::syscall(number, a, b, c, d, e, f),
            libc::SYS_read => streams::read(fd, b as *mut _, c),
            libc::SYS_write => streams::write(fd, b as *const _, c),
            libc::SYS_readv => streams::readv(fd, b as *const _, c as c_int),
            libc::SYS_writev => streams::writev(fd, b as *const _, c as c_int),
            libc::SYS_recvfrom => streams::recvfrom(fd, b as *mut _, c, d as c_int, e as *mut _, f as *mut _),
            libc::SYS_sendto => streams::sendto(fd, b as *const _, c, d as c_int, e as *const _, f as u32),
            libc::SYS_recvmsg => messages::recvmsg(fd, b as *mut _, c as c_int),
            libc::SYS_sendmsg => messages::sendmsg(fd, b as *const _, c as c_int),
            libc::SYS_accept => names::accept(fd, b as *mut _, c as *mut _) as isize,
            libc::SYS_accept4 => names::accept4(fd, b as *mut _, c as *mut _, d as c_int) as isize,
            libc::SYS_shutdown => names::shutdown(fd, b as c_int) as isize,
            libc::SYS_setsockopt => {
                names::setsockopt(fd, b as c_int, c as c_int, d as *const _, e as u32) as isize
            }
            libc::SYS_getsockopt => {
                names::getsockopt(fd, b as c_int, c as c_int, d as *mut _, e as *mut _) as isize
            }
            libc::SYS_getsockname => names::getsockname(fd, b as *mut _, c as *mut _) as isize,
            libc::SYS_getpeername => names::getpeername(fd, b as *mut _, c as *mut _) as isize,
            libc::SYS_close => descriptors::close(fd) as isize,
            libc::SYS_dup => descriptors::dup(fd) as isize,
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c) as isize,
            libc::SYS_ioctl => descriptors::ioctl(fd, b, c) as isize,
            libc::SYS_epoll_pwait => {
                readiness::epoll_pwait(fd, b as *mut _, c as c_int, d as c_int, e as *const _) as isize
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => readiness::epoll_wait(fd, b as *mut _, c as c_int, d as c_int) as isize,
            _ => return real::syscall(number, a, b, c, d, e, f),
        };
        done as c_long
    }
}
