/** Verifies a request: Verify SECRET ID TIMESTAMP SIGNATURES, with the body on standard input; "" is no header. */
public class Verify {
    public static void main(String[] arguments) throws Exception {
        byte[] body = new byte[4096];
        int length = System.in.read(body);
        try {
            String signatures = arguments[3].isEmpty() ? null : arguments[3];
            Webhooks.verify(arguments[0], arguments[1], arguments[2], signatures, java.util.Arrays.copyOf(body, length));
            System.out.println("verified");
        } catch (Webhooks.Unverified error) {
            System.out.println("Unverified");
        }
    }
}
