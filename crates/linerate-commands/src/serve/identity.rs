//! The user that the server becomes once it listens.

use std::ffi::CString;

use linerate_serve::Io;
use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, initgroups, seteuid, setgid, setgroups, setuid};

use super::ServeArgs;
use crate::fault::CommandFault;

/// The user and group to serve as.
#[derive(Debug)]
pub(super) struct Identity {
    name: CString,
    uid: Uid,
    gid: Gid,
    /// A group was named: the user's others are left out.
    alone: bool,
}

impl Identity {
    /// Looks up `--user` and `--group` on this machine.
    pub(super) fn of(args: &ServeArgs) -> Result<Option<Identity>, CommandFault> {
        let Some(name) = &args.user else {
            return match &args.group {
                Some(_) => Err(CommandFault::input("--group is the group of --user, and there is none")),
                None => Ok(None),
            };
        };
        if args.io.is_some_and(Io::is_user_space) {
            return Err(CommandFault::input(
                "--user does not go with --io xdp, which keeps its privileges to steer packets",
            ));
        }
        let unknown =
            |what: &str, name: &str| CommandFault::input(format!("{what}: this machine has no {name}"));
        let user = User::from_name(name).ok().flatten().ok_or_else(|| unknown("--user", name))?;
        let gid = match &args.group {
            Some(group) => {
                Group::from_name(group).ok().flatten().ok_or_else(|| unknown("--group", group))?.gid
            }
            None => user.gid,
        };
        let me = geteuid();
        if !me.is_root() && me != user.uid {
            return Err(CommandFault::input(format!("--user {name}: only root can become another user"))
                .hint("start it as root, or let the service manager choose the user"));
        }
        if !me.is_root() && gid != getegid() {
            return Err(CommandFault::input("--group: only root can take another group")
                .hint("start it as root, or let the service manager choose the group"));
        }
        let name = CString::new(name.as_str()).map_err(|_| unknown("--user", "such user"))?;
        Ok(Some(Identity { name, uid: user.uid, gid, alone: args.group.is_some() }))
    }

    /// All threads become that user, and none can go back.
    pub(super) fn take(&self) -> Result<(), CommandFault> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let groups = if self.alone { setgroups(&[self.gid]) } else { initgroups(&self.name, self.gid) };
        let failed = |why: &str| CommandFault::ours(format!("--user {}: {why}", self.name.to_string_lossy()));
        groups
            .and_then(|()| setgid(self.gid))
            .and_then(|()| setuid(self.uid))
            .map_err(|e| failed(e.desc()))?;
        // A kernel or a container with its own rules may still allow the way back to root.
        if !self.uid.is_root() && seteuid(Uid::from_raw(0)).is_ok() {
            return Err(failed("the process can still become root"));
        }
        Ok(())
    }
}
