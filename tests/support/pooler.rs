//! PgBouncer in front of a PostgreSQL, as user `postgres` where tests run as root (it refuses root).

use super::leash::{DataFolder, Leash, free_ports, program};
use super::postgres::{give_to_postgres, psql_answers, user_switch};
use super::until;

/// Another process took the port between our look and the pooler's: rare, and then another one is free.
const STARTS_MAX: u32 = 5;

pub struct Pooler {
    port: u16,
    process: Leash,
    _folder: DataFolder,
}

impl Pooler {
    /// `mode` is `session` or `transaction`; the server is the one a DSN names.
    pub async fn start(dsn: &str, mode: &str) -> Self {
        let server = program("pgbouncer", &["/usr/sbin".into()], "pgbouncer");
        let upstream = dsn.rsplit_once('@').unwrap().1.split('/').next().unwrap();
        let (host, port) = upstream.split_once(':').unwrap();
        for _ in 0..STARTS_MAX {
            let folder = DataFolder::new("pooler");
            let own = free_ports(1)[0];
            let settings = folder.path().join("pgbouncer.ini");
            let text = format!(
                "[databases]\n* = host={host} port={port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {own}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            );
            std::fs::write(&settings, text).unwrap();
            give_to_postgres(&settings);
            let mut command = user_switch();
            command.extend([server.to_str().unwrap(), settings.to_str().unwrap()]);
            let process = Leash::start(&command, "KILL", &folder.path().join("log"));
            let pooler = Pooler { port: own, process, _folder: folder };
            let mut ready = false;
            until("PgBouncer is ready, or failed to start", || {
                ready = psql_answers(&pooler.dsn(dsn));
                ready || pooler.process.ended()
            })
            .await;
            if ready {
                return pooler;
            }
        }
        panic!("PgBouncer found its port taken {STARTS_MAX} times");
    }

    /// The same database through the pooler.
    pub fn dsn(&self, direct: &str) -> String {
        let database = direct.rsplit_once('/').unwrap().1;
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}
