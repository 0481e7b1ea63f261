//! Certificate requests, as anyone may send them: none makes a reader fall, and what is read is all there is.
#![no_main]

use ferry_x509::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = ferry_x509::subject_of_certificate(data);
    if let Ok(request) = Request::from_pem(data) {
        let again = Request::from_der(request.der.clone());
        assert_eq!(again.as_ref(), Ok(&request), "its bytes say the same");
    }
    if let Ok(request) = Request::from_der(data.to_vec()) {
        assert_eq!(request.der, data);
        let _ = request.is_signed_by_its_key();
    }
});
