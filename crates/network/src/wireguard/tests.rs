//! Two nodes in network namespaces of their own, and somebody who listens on the wire between them.

use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ferry_tasks::Tasks;
use rtnetlink::new_connection;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use tokio::sync::{mpsc, oneshot};

use super::{Device, PrivateKey};
use crate::kernel_tests::{Lab, NODES, sh};
use crate::plan::{Member, plan};
use crate::{Kernel, Mode};

const DEVICE: &str = "ferry-wg";
/// All protocols, in the network's order of bytes.
const EVERYTHING: u32 = 0x0300;

/// A node that runs until it is dropped; it is told who the others are, and says when it has taken that over.
struct Running {
    tell: mpsc::UnboundedSender<(Vec<Member>, oneshot::Sender<usize>)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(lab: &Lab, node: usize, key: PrivateKey) -> Self {
        let (tell, mut told) = mpsc::unbounded_channel::<(Vec<Member>, oneshot::Sender<usize>)>();
        let own = Member { public_key: Some(key.public()), ..lab.member(node) };
        let thread = lab.inside(NODES[node], async move {
            let (connection, handle, _) = new_connection().expect("netlink");
            let tasks = Tasks::new("node");
            tasks.spawn_until_stopped("netlink", connection);
            let kernel = Kernel::new(handle, "ferry-vxlan");
            let mut device = Device::new(DEVICE, key, &tasks);
            while let Some((others, done)) = told.recv().await {
                let underlay = kernel.underlay(own.addresses[0]).await.expect("the device");
                let plan = plan(Mode::Wireguard, &own, &underlay, &others);
                let wanted = plan.wireguard.as_ref().expect("a device");
                let (index, changes) = device.ensure(&kernel, wanted).await.expect("a device");
                let changes = changes + kernel.apply(&plan, Some(index)).await.expect("applies");
                done.send(changes).expect("somebody waits");
            }
            assert!(tasks.stop(Duration::from_secs(60)).await);
        });
        Self { tell, thread: Some(thread) }
    }

    fn learn(&self, others: &[Member]) -> usize {
        let (done, wait) = oneshot::channel();
        self.tell.send((others.to_vec(), done)).expect("it runs");
        wait.blocking_recv().expect("it took that over")
    }

    fn stop(mut self) {
        self.tell = mpsc::unbounded_channel().0;
        self.thread.take().expect("it ran").join().expect("no panic");
    }
}

/// Everything that passes the wire.
struct Wire(OwnedFd);

impl Wire {
    fn listen(lab: &Lab) -> Self {
        let opened = lab.inside("hub", async {
            let everything = NonZeroU32::new(EVERYTHING).map(Protocol::from_raw);
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            socket_with(AddressFamily::PACKET, SocketType::RAW, flags, everything).expect("a raw socket")
        });
        Self(opened.join().expect("no panic"))
    }

    /// How many frames there were since the last time, and how many of them show what was sent.
    fn seen(&self) -> (usize, usize) {
        let (mut all, mut plain) = (0, 0);
        let mut frame = vec![0; 70_000];
        loop {
            match recv(&self.0, &mut frame[..], RecvFlags::empty()) {
                Ok((size, _)) => {
                    all += 1;
                    plain += usize::from(frame[..size].windows(12).any(|part| part == b"ferry!ferry!"));
                }
                Err(error) if std::io::Error::from(error).kind() == ErrorKind::WouldBlock => return (all, plain),
                Err(error) => panic!("the wire: {error}"),
            }
        }
    }
}

fn members(lab: &Lab, keys: &[PrivateKey]) -> Vec<Member> {
    let numbered = keys.iter().enumerate();
    numbered.map(|(node, key)| Member { public_key: Some(key.public()), ..lab.member(node) }).collect()
}

#[test]
fn pods_reach_each_other_and_the_wire_shows_nothing_of_it() {
    let lab = Lab::new("w");
    let wire = Wire::listen(&lab);
    // What a listener sees without encryption.
    lab.apply_everywhere(Mode::Routes);
    assert!(lab.ping("a", "10.200.2.2", 200));
    assert!(wire.seen().1 > 0, "the listener hears what is sent in the clear");

    let keys = [PrivateKey::generate(), PrivateKey::generate()];
    let all = members(&lab, &keys);
    let nodes: Vec<Running> = (0..2).map(|node| Running::start(&lab, node, keys[node].clone())).collect();
    for node in &nodes {
        assert!(node.learn(&all) > 0);
        assert_eq!(node.learn(&all), 0, "a second look finds nothing to do");
    }
    wire.seen();
    for size in [56, 1300, 4000] {
        assert!(lab.ping("a", "10.200.2.2", size), "{size} bytes over IPv4");
        assert!(lab.ping("b", "fd00:200:1::2", size), "{size} bytes over IPv6");
    }
    // The node itself, too, and the answer does not come back in the clear.
    assert!(lab.ping_from("a", "10.200.2.2", 200), "from the node to a pod of another");
    let (frames, plain) = wire.seen();
    assert!(frames > 20 && plain == 0, "{plain} of {frames} frames can be read");

    // Another key under the same name is another node: the old one is not let in any more.
    let stranger = PrivateKey::generate();
    nodes[0].learn(&members(&lab, &[keys[0].clone(), stranger]));
    assert!(!lab.ping_once("b", "10.200.1.2"), "whoever has the wrong key is not heard");
    nodes[0].learn(&all);
    assert!(lab.ping("b", "10.200.1.2", 56), "with its own key it is");

    // A node that starts again goes on; while it is away nothing leaves in the clear.
    let mut nodes = nodes.into_iter();
    let (first, second) = (nodes.next().expect("a"), nodes.next().expect("b"));
    second.stop();
    wire.seen();
    // The kernel's WireGuard works without it; nobody else does its work.
    let in_kernel = sh(&format!("ip -n {} -d link show {DEVICE}", lab.name("b"))).contains("wireguard");
    assert_eq!(lab.ping_once("b", "10.200.1.2"), in_kernel);
    assert_eq!(wire.seen().1, 0, "nothing leaves that can be read");
    let second = Running::start(&lab, 1, keys[1].clone());
    second.learn(&all);
    assert!(lab.ping("b", "10.200.1.2", 56) && lab.ping("a", "10.200.2.2", 56), "it is back");
    second.stop();
    first.stop();
}

#[test]
fn a_node_is_found_over_ipv6_and_where_it_moved_to() {
    let lab = Lab::new("v");
    let keys = [PrivateKey::generate(), PrivateKey::generate()];
    let mut all = members(&lab, &keys);
    // Each knows only the other's IPv6 address.
    all.iter_mut().for_each(|member| member.addresses.retain(std::net::IpAddr::is_ipv6));
    let nodes: Vec<Running> = (0..2).map(|node| Running::start(&lab, node, keys[node].clone())).collect();
    assert!(nodes.iter().all(|node| node.learn(&all) > 0));
    assert!(lab.ping("a", "10.200.2.2", 1300), "IPv4 in IPv6");
    let link = sh(&format!("ip -n {} -o link show {DEVICE}", lab.name("a")));
    assert!(link.contains("mtu 1420"), "{link}");
    // It has another address, and nobody was told: the next packet that it sends tells.
    sh(&format!(
        "ip -n {b} addr del fd00:77::2/64 dev eth0 && ip -n {b} addr add fd00:77::22/64 dev eth0 nodad",
        b = lab.name("b")
    ));
    assert!(lab.ping("b", "10.200.1.2", 56), "from its new address");
    assert!(lab.ping("a", "10.200.2.2", 56), "it is heard there");
    nodes.into_iter().for_each(Running::stop);
}
