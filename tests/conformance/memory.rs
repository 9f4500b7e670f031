//! The store in memory keeps the contract.

use trueup::store::memory::Memory;

use super::stores::conforms;

#[tokio::test]
async fn memory_keeps_the_contract() {
    conforms(&Memory::new()).await;
}
