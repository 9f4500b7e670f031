//! Requests in one line each, so that transactions read like what they do.

use bytes::Bytes;

use super::compare::{CompareResult, CompareTarget, TargetUnion};
use super::request_op::Request as Op;
use super::response_op::Response as Answer;
use super::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp, ResponseOp,
    TxnRequest, TxnResponse,
};

/// One key, as it is now.
pub fn key(key: impl Into<Bytes>) -> RangeRequest {
    RangeRequest { key: key.into(), limit: 1, ..RangeRequest::default() }
}

/// One key, as it was at a revision.
pub fn key_at(at: impl Into<Bytes>, revision: i64) -> RangeRequest {
    RangeRequest { revision, ..key(at) }
}

pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() }
}

pub fn delete(key: impl Into<Bytes>) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() }
}

/// "The key was last written at this revision"; 0 = "there is no such key".
pub fn unmoved(key: impl Into<Bytes>, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
    }
}

/// No key was ever written at this revision, so what it guards never happens; permissions are checked all the same.
const NEVER: i64 = -1;

/// A put and a delete that never happen: whoever is answered may write and delete there.
pub fn touch(at: impl Into<Bytes> + Clone) -> TxnRequest {
    let mut touch = never(at.clone(), put(at.clone(), ""));
    touch.failure.push(never(at.clone(), delete(at)).into());
    touch
}

/// A change that never happens, with something to look at instead.
fn never(at: impl Into<Bytes> + Clone, change: impl Into<RequestOp>) -> TxnRequest {
    TxnRequest {
        compare: vec![unmoved(at.clone(), NEVER)],
        success: vec![change.into()],
        failure: vec![key(at).into()],
    }
}

/// "The key holds exactly this value."
pub fn holds(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Value.into(),
        key: key.into(),
        target_union: Some(TargetUnion::Value(value.into())),
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(request: RangeRequest) -> Self {
        RequestOp { request: Some(Op::RequestRange(request)) }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(request: PutRequest) -> Self {
        RequestOp { request: Some(Op::RequestPut(request)) }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(request: DeleteRangeRequest) -> Self {
        RequestOp { request: Some(Op::RequestDeleteRange(request)) }
    }
}

impl From<TxnRequest> for RequestOp {
    fn from(request: TxnRequest) -> Self {
        RequestOp { request: Some(Op::RequestTxn(request)) }
    }
}

impl ResponseOp {
    pub fn txn(&self) -> Option<&TxnResponse> {
        match &self.response {
            Some(Answer::ResponseTxn(answer)) => Some(answer),
            _ => None,
        }
    }

    pub fn range(&self) -> Option<&RangeResponse> {
        match &self.response {
            Some(Answer::ResponseRange(answer)) => Some(answer),
            _ => None,
        }
    }

    /// How many keys a delete removed; `None` when this is no answer to a delete.
    pub fn deleted(&self) -> Option<i64> {
        match &self.response {
            Some(Answer::ResponseDeleteRange(answer)) => Some(answer.deleted),
            _ => None,
        }
    }

    /// The key a one-key read found.
    pub fn found(&self) -> Option<&KeyValue> {
        self.range().and_then(|answer| answer.kvs.first())
    }
}
