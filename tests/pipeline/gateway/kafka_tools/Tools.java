import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM, because a JVM of its own for each
 * takes seconds. A line of the standard input is a tool's class, what it is to read from its standard
 * input, with unit separators (U+001F) for line ends, and its arguments, between tabs. The answer is a line
 * with the exit status and the number of bytes on either stream, then those bytes.
 *
 * <p>A tool that exits stands still there: nothing behind its exit runs, as if its process had ended.
 */
public final class Tools {
    private static CompletableFuture<Integer> ended;

    public static void main(String[] none) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
        Exit.setExitProcedure((status, message) -> {
            ended.complete(status);
            while (true) LockSupport.park();
        });
        Exit.setHaltProcedure((status, message) -> {
            ended.complete(status);
            while (true) LockSupport.park();
        });
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            String[] words = line.split("\t", -1);
            byte[] input = words[1].replace('\u001f', '\n').getBytes(StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(input));
            int status = run(words);
            byte[] first = out.toByteArray();
            byte[] second = err.toByteArray();
            answers.printf("%d %d %d%n", status, first.length, second.length);
            answers.write(first);
            answers.write(second);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String[] words) throws Exception {
        ended = new CompletableFuture<>();
        Method tool = Class.forName(words[0]).getMethod("main", String[].class);
        Object arguments = Arrays.copyOfRange(words, 2, words.length);
        Thread thread = new Thread(() -> {
            try {
                tool.invoke(null, arguments);
                ended.complete(0);
            } catch (InvocationTargetException failure) {
                failure.getCause().printStackTrace();
                ended.complete(1);
            } catch (IllegalAccessException failure) {
                ended.completeExceptionally(failure);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return ended.get();
    }
}
