import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Checks that a request comes from Hourwheel, by the signatures of Standard Webhooks 1.0.0. Needs Java 8 or newer. */
public final class Webhooks {
    private static final String PREFIX = "whsec_";
    private static final long TOLERANCE_SECONDS = 300;

    /** Says that a request must not be trusted, and why. Answer it with 401 and do nothing else. */
    public static final class Unverified extends Exception {
        Unverified(String reason) {
            super(reason);
        }
    }

    private Webhooks() {}

    /**
     * Returns if the request was signed with {@code secret} and made within five minutes of now. {@code id},
     * {@code timestamp} and {@code signatures} are the headers webhook-id, webhook-timestamp and webhook-signature;
     * {@code body} is the body as it arrived, before anything parses it.
     */
    public static void verify(String secret, String id, String timestamp, String signatures, byte[] body)
            throws Unverified, GeneralSecurityException {
        if (!secret.startsWith(PREFIX)) {
            throw new IllegalArgumentException("a signing secret is whsec_ and base64");
        }
        if (id == null || timestamp == null || signatures == null) {
            throw new Unverified("a header is missing");
        }
        if (!timestamp.matches("[0-9]{1,15}")) {
            throw new Unverified("the header webhook-timestamp is not a time in Unix seconds");
        }
        if (Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(timestamp)) > TOLERANCE_SECONDS) {
            throw new Unverified("the request is more than five minutes from now");
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(secret.substring(PREFIX.length())), "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
        byte[] expected = mac.doFinal(body);
        for (String entry : signatures.split(" ")) {
            if (entry.startsWith("v1,") && MessageDigest.isEqual(expected, decoded(entry.substring(3)))) {
                return;
            }
        }
        throw new Unverified("no v1 signature of webhook-signature is right");
    }

    private static byte[] decoded(String text) {
        try {
            return Base64.getDecoder().decode(text);
        } catch (IllegalArgumentException invalid) {
            return new byte[0];
        }
    }
}
