//! etcd, one node or several, each of which can be killed, restarted and paused.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::certificates::Authority;
use super::leash::{DataFolder, Leash, free_ports, program};
use super::until;

/// Another process took a port between our look and the server's: rare, and then other ports are free.
const STARTS_MAX: u32 = 5;
/// One look at a node on loopback.
const LOOK: Duration = Duration::from_millis(500);

/// What became of each key at each revision.
pub type History = BTreeMap<(String, i64), Option<String>>;

pub struct Etcd {
    nodes: Vec<Node>,
    /// Of what clients connect to.
    scheme: &'static str,
    flags: Vec<String>,
    folder: DataFolder,
}

struct Node {
    client_port: u16,
    peer_port: u16,
    /// Tells of its health without TLS, whatever clients need.
    health_port: u16,
    /// `None` while killed.
    process: Mutex<Option<Leash>>,
}

impl Etcd {
    /// Start a cluster and wait until every node sees a leader.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(nodes, &[]).await
    }

    /// One node that shows a certificate for 127.0.0.1 and asks clients for one of the same authority.
    pub async fn start_tls(authority: &Authority) -> Self {
        let server = authority.issue("etcd", "IP:127.0.0.1");
        let flags = [
            format!("--cert-file={}", server.certificate.display()),
            format!("--key-file={}", server.key.display()),
            format!("--trusted-ca-file={}", authority.file().display()),
            "--client-cert-auth=true".to_owned(),
        ];
        Self::begin("https", 1, &flags).await
    }

    /// With flags besides, as `--max-txn-ops=8`.
    pub async fn start_with(nodes: usize, flags: &[&str]) -> Self {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self::begin("http", nodes, &flags).await
    }

    async fn begin(scheme: &'static str, nodes: usize, flags: &[String]) -> Self {
        for _ in 0..STARTS_MAX {
            let ports = free_ports(nodes * 3);
            let nodes = ports.chunks(3).map(|ports| Node {
                client_port: ports[0],
                peer_port: ports[1],
                health_port: if scheme == "https" { ports[2] } else { ports[0] },
                process: Mutex::new(None),
            });
            let folder = DataFolder::new("etcd");
            let etcd = Etcd { nodes: nodes.collect(), scheme, flags: flags.to_vec(), folder };
            for node in 0..etcd.nodes.len() {
                etcd.launch(node);
            }
            let mut healthy = false;
            until("etcd is healthy, or failed to start", || {
                healthy = etcd.healthy();
                healthy || etcd.clashed()
            })
            .await;
            if healthy {
                return etcd;
            }
        }
        panic!("etcd found its ports taken {STARTS_MAX} times");
    }

    /// `127.0.0.1:2379,127.0.0.1:2381,…`: what follows `etcd://`.
    pub fn endpoints(&self) -> String {
        let addresses: Vec<_> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.client_port)).collect();
        addresses.join(",")
    }

    /// Kill a node as a power cut would.
    pub fn kill(&self, node: usize) {
        let leash = self.nodes[node].process.lock().unwrap().take().expect("the node is running");
        drop(leash);
    }

    /// Start a killed node on its old data, and wait until it takes part again.
    pub async fn restart(&self, node: usize) {
        self.launch(node);
        until("the etcd node is back", || {
            // Its ports may have been taken for a moment while it was away.
            if self.nodes[node].process.lock().unwrap().as_ref().is_some_and(Leash::ended) {
                self.launch(node);
            }
            self.nodes[node].healthy()
        })
        .await;
    }

    /// A copy of the data of the only node, which is killed for it and started again.
    pub async fn back_up(&self) {
        self.kill(0);
        self.copy("n0", "backup");
        self.restart(0).await;
    }

    /// The only node, killed by now or not, goes on from the copy; what was written since never happened.
    pub async fn restore(&self) {
        drop(self.nodes[0].process.lock().unwrap().take());
        std::fs::remove_dir_all(self.folder.path().join("n0")).unwrap();
        self.copy("backup", "n0");
        self.restart(0).await;
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    }

    /// Every node stops in its tracks: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// The node that leads, as the cluster sees it now.
    pub fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|&node| self.leads(node))
    }

    /// The node that leads, as soon as one does.
    pub async fn leading(&self) -> usize {
        let mut leader = None;
        until("a node leads", || {
            leader = self.leader();
            leader.is_some()
        })
        .await;
        leader.unwrap()
    }

    /// `etcdctl` on the whole cluster.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let patient = ["--command-timeout=60s", "--dial-timeout=30s"];
        let output = etcdctl(&self.endpoints(), &[arguments, &patient].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// From now on one must log in: `root` may do everything, `weak` may read what is below a prefix. Their word is `secret`.
    pub fn ask_who_is_there(&self, readable: &str) {
        for command in [
            &["user", "add", "root:secret"][..],
            &["user", "grant-role", "root", "root"],
            &["user", "add", "weak:secret"],
            &["role", "add", "reader"],
            &["role", "grant-permission", "reader", "read", "--prefix=true", readable],
            &["user", "grant-role", "weak", "reader"],
            &["auth", "enable"],
        ] {
            self.ctl(command);
        }
    }

    /// Every event below a prefix before the revision `end`, which is one below it as well. `None` = deleted.
    pub fn history(&self, prefix: &str, end: i64) -> History {
        let mut watcher = Command::new(program("etcdctl", &[], "etcd-client"))
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.endpoints()))
            .args(["watch", "--prefix", prefix, "--rev=1", "--write-out=json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let decode = |text: &serde_json::Value| {
            String::from_utf8(STANDARD.decode(text.as_str().unwrap_or_default()).unwrap()).unwrap()
        };
        let mut history = History::new();
        let lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
        'reading: for line in lines {
            let answer: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            for event in answer["Events"].as_array().into_iter().flatten() {
                let at = event["kv"]["mod_revision"].as_i64().unwrap();
                if at == end {
                    break 'reading;
                }
                let deleted = event["type"].as_i64() == Some(1);
                let value = (!deleted).then(|| decode(&event["kv"]["value"]));
                history.insert((decode(&event["kv"]["key"]), at), value);
            }
        }
        watcher.kill().unwrap();
        watcher.wait().unwrap();
        history
    }

    fn signal(&self, name: &str) {
        for node in &self.nodes {
            if let Some(leash) = &*node.process.lock().unwrap() {
                leash.signal(name);
            }
        }
    }

    fn launch(&self, node: usize) {
        let server = program("etcd", &[], "etcd-server");
        let cluster: Vec<_> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(other, it)| format!("n{other}=http://127.0.0.1:{}", it.peer_port))
            .collect();
        let Node { client_port, peer_port, health_port, process } = &self.nodes[node];
        let client = format!("{}://127.0.0.1:{client_port}", self.scheme);
        let peer = format!("http://127.0.0.1:{peer_port}");
        let data = self.folder.path().join(format!("n{node}"));
        let flags = [
            format!("--name=n{node}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", cluster.join(",")),
            // Tests kill processes, not machines: the kernel keeps what was written.
            "--unsafe-no-fsync".to_owned(),
        ];
        let health = (health_port != client_port)
            .then(|| format!("--listen-metrics-urls=http://127.0.0.1:{health_port}"));
        let mut command = vec![server.to_str().unwrap()];
        command.extend(flags.iter().chain(&health).chain(&self.flags).map(String::as_str));
        let log = self.folder.path().join(format!("n{node}.log"));
        *process.lock().unwrap() = Some(Leash::start(&command, "KILL", &log));
    }

    fn healthy(&self) -> bool {
        self.nodes.iter().all(Node::healthy)
    }

    /// A node ended: over a taken port (start again), or over something to fail with.
    fn clashed(&self) -> bool {
        self.nodes.iter().any(|node| {
            let process = node.process.lock().unwrap();
            let Some(leash) = process.as_ref().filter(|leash| leash.ended()) else { return false };
            let log = leash.log();
            assert!(log.contains("address already in use"), "etcd ended:\n{log}");
            true
        })
    }

    fn leads(&self, node: usize) -> bool {
        let endpoint = format!("127.0.0.1:{}", self.nodes[node].client_port);
        let output = etcdctl(&endpoint, &["endpoint", "status", "--write-out=json", "--command-timeout=1s"]);
        let Ok(answer) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else { return false };
        let status = &answer[0]["Status"];
        status["leader"].is_u64() && status["leader"] == status["header"]["member_id"]
    }
}

impl Node {
    /// etcd calls itself healthy when it has a leader and can commit.
    fn healthy(&self) -> bool {
        let address = SocketAddr::from(([127, 0, 0, 1], self.health_port));
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&address, LOOK)?;
            stream.set_read_timeout(Some(LOOK))?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains(r#""health":"true""#))
    }
}

fn etcdctl(endpoints: &str, arguments: &[&str]) -> std::process::Output {
    Command::new(program("etcdctl", &[], "etcd-client"))
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints={endpoints}"))
        .args(arguments)
        .output()
        .unwrap()
}
