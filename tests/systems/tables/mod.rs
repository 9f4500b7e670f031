//! REST hierarchies into tables: a parliament on a loopback port, the real program, SQLite and a real PostgreSQL.
//! Scenarios are numbered as the promises of `docs/tables.md` are; each runs on both databases.

mod canonical;
mod changes;
mod desk;
mod fresh;
mod growth;
mod hands;
mod keyed;
mod kit;
mod marks;
mod moves;
mod odd;
mod older;
mod orphaned;
mod pages;
mod postgres;
mod quiet;
mod recipes;
mod runs;
mod slipped;
mod store;
mod strangers;
mod strays;
mod triggers;
mod troubles;
mod verbatim;

/// Every scenario named here runs once on each database.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => { $(
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_sqlite() {
                super::$name(super::Stage::on_sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_postgres() {
                super::$name(super::Stage::on_postgres().await).await;
            }
        }
    )* };
}
use on_both;
