//! PodMetrics: its row of a table shows the sum of its containers.

use ferry_meta::{Quantity, object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::plain::Plain;
use crate::strategy::Strategy;

pub struct PodMetrics(pub Plain);

impl Strategy for PodMetrics {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        let sum = |resource: &str| {
            let amounts = object::items(object, "/containers").iter();
            let amounts = amounts.filter_map(|container| Quantity::parse(container["usage"][resource].as_str()?).ok());
            amounts.reduce(|sum, amount| sum.add(&amount)).unwrap_or_default().to_string()
        };
        let text = |pointer: &str| object::text(object, pointer);
        json!([text("/metadata/name"), sum("cpu"), sum("memory"), text("/window")])
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceTable;

    #[test]
    fn a_row_shows_the_sum_of_the_containers() {
        let table = ResourceTable::resource_metrics();
        let row = table.find("metrics.k8s.io", "v1beta1", "pods").expect("a row");
        let object = json!({"metadata": {"name": "a"}, "window": "15s", "containers": [
            {"name": "x", "usage": {"cpu": "1500000n", "memory": "1Mi"}},
            {"name": "y", "usage": {"cpu": "500u", "memory": "512Ki"}},
        ]});
        let now = ferry_meta::time::now();
        assert_eq!(json!(row.strategy.cells(&object, now)), json!(["a", "2m", "1536Ki", "15s"]));
        for row in table.rows() {
            let cells = row.strategy.cells(&json!({}), now);
            assert_eq!((cells.len(), row.stored), (row.columns.len(), false), "{}", row.plural);
        }
    }
}
