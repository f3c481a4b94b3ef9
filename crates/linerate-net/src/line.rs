//! The speed of the line behind an interface, where it is real: the speed of a virtual interface is
//! nominal.

use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::link::xdp::interface_towards;

/// The physical line that packets leave by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhysicalLine {
    /// The interface that packets leave by.
    pub interface: String,
    /// Bits per second, in each direction.
    pub bits_per_second: u64,
}

/// Where Linux lists interfaces.
const INTERFACES: &str = "/sys/class/net";

/// How many lower interfaces are followed. Reason: a VLAN on a macvlan on a card is two.
const UNDER: u32 = 4;

/// Drivers of virtual devices, whose nominal speed limits nothing.
const NOMINAL: [&str; 4] = ["virtio_net", "vmxnet3", "vif", "hv_netvsc"];

impl PhysicalLine {
    /// The line of an interface; `None` if its speed is unknown or nominal.
    pub fn of(interface: &str) -> Option<PhysicalLine> {
        of(Path::new(INTERFACES), interface)
    }

    /// The line that the routes to all these addresses share.
    pub fn towards(addresses: &[IpAddr]) -> Option<PhysicalLine> {
        let mut indexes = addresses.iter().map(|to| interface_towards(*to));
        let first = indexes.next()??;
        if indexes.any(|index| index != Some(first)) {
            return None;
        }
        PhysicalLine::of(&named(Path::new(INTERFACES), first)?)
    }
}

/// The name of the interface with this index.
fn named(interfaces: &Path, index: u32) -> Option<String> {
    let has_it = |at: &PathBuf| {
        fs::read_to_string(at.join("ifindex")).is_ok_and(|text| text.trim().parse() == Ok(index))
    };
    let at = fs::read_dir(interfaces).ok()?.flatten().map(|entry| entry.path()).find(has_it)?;
    Some(at.file_name()?.to_str()?.to_owned())
}

fn of(interfaces: &Path, interface: &str) -> Option<PhysicalLine> {
    let mut at = interfaces.join(interface);
    for _ in 0..UNDER {
        if at.join("device").exists() {
            break;
        }
        at = interfaces.join(only_one_under(&at)?);
    }
    let driver = fs::read_link(at.join("device/driver")).ok()?;
    if NOMINAL.iter().any(|name| driver.file_name() == Some(OsStr::new(name))) {
        return None;
    }
    // The kernel reports -1, or an error, if the speed is unknown.
    let megabits: i64 = fs::read_to_string(at.join("speed")).ok()?.trim().parse().ok()?;
    let megabits = u64::try_from(megabits).ok().filter(|n| (1..u64::from(u32::MAX)).contains(n))?;
    Some(PhysicalLine { interface: interface.to_owned(), bits_per_second: megabits * 1_000_000 })
}

/// The interface below a VLAN or macvlan; `None` for a bond, which has several.
fn only_one_under(at: &Path) -> Option<String> {
    let names = fs::read_dir(at).ok()?.flatten().map(|entry| entry.file_name());
    let mut under = names.filter_map(|name| Some(name.to_str()?.strip_prefix("lower_")?.to_owned()));
    under.next().filter(|_| under.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Interfaces as Linux lists them: name, driver, speed, lower interfaces.
    fn interfaces(all: &[(&str, Option<&str>, &str, &[&str])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (i, (name, driver, speed, under)) in all.iter().enumerate() {
            let at = folder.path().join(name);
            fs::create_dir(&at).expect("made");
            fs::write(at.join("ifindex"), format!("{}\n", i + 1)).expect("written");
            fs::write(at.join("speed"), format!("{speed}\n")).expect("written");
            if let Some(driver) = driver {
                fs::create_dir(at.join("device")).expect("made");
                symlink(format!("../../../bus/pci/drivers/{driver}"), at.join("device/driver"))
                    .expect("made");
            }
            for below in *under {
                symlink(format!("../{below}"), at.join(format!("lower_{below}"))).expect("made");
            }
        }
        folder
    }

    #[test]
    fn only_a_real_speed_counts() {
        let all = interfaces(&[
            ("eth0", Some("ixgbe"), "10000", &[]),
            ("vlan7", None, "10000", &["eth0"]),
            ("macvlan0", None, "10000", &["vlan7"]),
            ("bond0", None, "20000", &["eth0", "eth1"]),
            ("eth1", Some("ixgbe"), "-1", &[]),
            ("veth0", None, "10000", &[]),
            ("ens3", Some("virtio_net"), "10000", &[]),
            ("ens160", Some("vmxnet3"), "10000", &[]),
            ("loop0", None, "1000", &["loop0"]),
        ]);
        let speed = |name: &str| of(all.path(), name).map(|line| line.bits_per_second);
        for name in ["eth0", "vlan7", "macvlan0"] {
            assert_eq!(speed(name), Some(10_000_000_000), "{name}");
        }
        assert_eq!(of(all.path(), "vlan7").map(|line| line.interface), Some("vlan7".to_owned()));
        for name in ["bond0", "eth1", "veth0", "ens3", "ens160", "loop0", "none"] {
            assert_eq!(speed(name), None, "{name}");
        }
        assert_eq!(named(all.path(), 3), Some("macvlan0".to_owned()));
        assert_eq!(named(all.path(), 77), None);
    }

    #[test]
    fn loopback_has_none() {
        let local = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
        assert_eq!((PhysicalLine::towards(&local), PhysicalLine::towards(&[])), (None, None));
    }
}
