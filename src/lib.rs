//! trueup keeps keyed stores true to their sources.
//!
//! A pipeline is a sentence: **from** a [`source`], **as** a [`shape`], **into** a [`store`],
//! **then** follow-up work, **when** it is due. Lower modules never use higher ones:
//!
//! `record portion error retry clock secret tls` < `http etcd postgres` < `config` < `source shape store` < `state` < `queue`
//! < `pipeline` < `registry replica workspace schedule` < `operations` < `server cli`

pub mod cli;
pub mod clock;
pub mod config;
pub mod error;
pub mod etcd;
pub mod http;
pub mod operations;
pub mod pipeline;
pub mod portion;
pub mod postgres;
pub mod queue;
pub mod record;
pub mod registry;
pub mod replica;
pub mod retry;
pub mod schedule;
pub mod secret;
pub mod server;
pub mod shape;
pub mod source;
pub mod state;
pub mod store;
pub mod tls;
pub mod workspace;
