//! Trust bundles as a file: the certificates of one bundle, or of all that a signer and labels pick.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_x509::pem;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use kube::core::{Selector, SelectorExt};

const LINE: usize = 64;

/// The file of a projection. What is missing is an empty file where that is allowed.
pub(super) fn anchors(
    bundles: &[Arc<ClusterTrustBundle>],
    source: &ClusterTrustBundleProjection,
) -> Result<Vec<u8>, String> {
    let optional = source.optional == Some(true);
    let picked = match (&source.name, &source.signer_name) {
        (Some(name), _) => {
            let found = bundles.iter().find(|bundle| bundle.metadata.name.as_ref() == Some(name));
            match found {
                Some(bundle) => vec![bundle],
                None if optional => Vec::new(),
                None => return Err(format!("clustertrustbundle.certificates.k8s.io {name:?} not found")),
            }
        }
        (None, Some(signer)) => {
            let picked = of_signer(bundles, signer, source)?;
            if picked.is_empty() && !optional {
                return Err(format!("no ClusterTrustBundle of signer {signer:?} matches the label selector"));
            }
            picked
        }
        (None, None) => return Err("the trust bundle names neither a bundle nor a signer".to_owned()),
    };
    // Several bundles often hold the same authorities; ordered, so that the file changes only when they do.
    let mut certificates = BTreeSet::new();
    for bundle in &picked {
        let blocks = pem::blocks(&bundle.spec.trust_bundle).into_iter();
        certificates.extend(blocks.filter(|block| block.label == "CERTIFICATE").map(|block| block.contents));
    }
    if certificates.is_empty() && !picked.is_empty() {
        return Err("the trust bundles hold no certificates".to_owned());
    }
    Ok(certificates.iter().flat_map(|der| encode(der)).collect())
}

fn of_signer<'a>(
    bundles: &'a [Arc<ClusterTrustBundle>],
    signer: &str,
    source: &ClusterTrustBundleProjection,
) -> Result<Vec<&'a Arc<ClusterTrustBundle>>, String> {
    // No selector picks nothing, an empty one everything.
    let Some(selector) = source.label_selector.clone() else { return Ok(Vec::new()) };
    let selector = Selector::try_from(selector).map_err(|e| e.to_string())?;
    let matches = |bundle: &&Arc<ClusterTrustBundle>| {
        bundle.spec.signer_name.as_deref() == Some(signer)
            && selector.matches(bundle.metadata.labels.as_ref().unwrap_or(&Default::default()))
    };
    Ok(bundles.iter().filter(matches).collect())
}

fn encode(der: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(der);
    let mut out = b"-----BEGIN CERTIFICATE-----\n".to_vec();
    for line in text.as_bytes().chunks(LINE) {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.extend_from_slice(b"-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde_json::json;

    use super::*;

    fn bundle(name: &str, signer: &str, color: &str, certificates: &[&str]) -> Arc<ClusterTrustBundle> {
        let text: Vec<u8> = certificates.iter().flat_map(|c| encode(c.as_bytes())).collect();
        let value = json!({
            "metadata": {"name": name, "labels": {"color": color}},
            "spec": {"signerName": signer, "trustBundle": String::from_utf8(text).expect("text")},
        });
        Arc::new(serde_json::from_value(value).expect("a bundle"))
    }

    fn check(source: ClusterTrustBundleProjection, want: Result<&[&str], &str>) {
        let bundles = [
            bundle("a", "s/1", "red", &["one", "two"]),
            bundle("b", "s/1", "blue", &["two", "three"]),
            bundle("c", "s/2", "red", &["four"]),
        ];
        match (anchors(&bundles, &source), want) {
            (Ok(file), Ok(want)) => {
                let text = String::from_utf8(file).expect("text");
                let found: Vec<Vec<u8>> = pem::blocks(&text).into_iter().map(|block| block.contents).collect();
                assert_eq!(found, want.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>(), "{source:?}");
            }
            (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
            (got, want) => panic!("{source:?}: {got:?} instead of {want:?}"),
        }
    }

    #[test]
    fn bundles_are_picked_by_name_or_by_signer_and_labels() {
        let named = |name: &str, optional| ClusterTrustBundleProjection {
            name: Some(name.into()),
            optional,
            ..Default::default()
        };
        check(named("a", None), Ok(&["one", "two"]));
        check(named("x", None), Err("\"x\" not found"));
        check(named("x", Some(true)), Ok(&[]));
        let signed = |signer: &str, selector, optional| ClusterTrustBundleProjection {
            signer_name: Some(signer.into()),
            label_selector: selector,
            optional,
            ..Default::default()
        };
        let red = LabelSelector { match_labels: Some([("color".into(), "red".into())].into()), ..Default::default() };
        check(signed("s/1", Some(LabelSelector::default()), None), Ok(&["one", "three", "two"]));
        check(signed("s/1", Some(red), None), Ok(&["one", "two"]));
        check(signed("s/1", None, None), Err("s/1"));
        check(signed("s/1", None, Some(true)), Ok(&[]));
        check(signed("s/3", Some(LabelSelector::default()), None), Err("s/3"));
    }
    /// The API server judged the bundle as a whole: all of it reaches the pod.
    #[test]
    fn what_is_no_block_hides_none_behind_it() {
        let mut broken = (*bundle("d", "s/4", "red", &["five"])).clone();
        let mistake = "-----BEGIN CERTIFICATE-----\nno base64!\n-----END CERTIFICATE-----\n";
        broken.spec.trust_bundle.insert_str(0, mistake);
        let source = ClusterTrustBundleProjection { name: Some("d".into()), ..Default::default() };
        assert_eq!(anchors(&[Arc::new(broken)], &source), Ok(encode(b"five")));
    }
}
